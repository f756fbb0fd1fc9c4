"""Control groups whose processes write slowly: found, limited, dissolved, and nothing else hit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaosspot.undo import Throttled, throttles
from chaosspot.undo.throttles import Controller, controller, device_of, dissolve, members, move

CONTROL = controller()
needs_groups = pytest.mark.skipif(CONTROL is None, reason="no control group can be made here")
FIRST = "31 25 0:27 / {0}/blkio rw shared:9 - cgroup cgroup rw,blkio\n"
SECOND = "32 25 0:28 / {0}/unified rw - cgroup2 none rw\n"
OTHER = (
    "33 25 0:29 / {0}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n35 1 8:1 / / rw - ext4 /dev/sda rw\n"
)


def group(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("_", ".", 1)).write_text(text)
    return path


def test_the_first_generation_is_used_where_it_has_the_drives(tmp_path: Path) -> None:
    mounts = (OTHER + SECOND + FIRST).format(tmp_path)
    group(tmp_path / "unified", cgroup_subtree_control="io")
    mine = group(tmp_path / "blkio" / "job")
    assert controller(mounts, "7:blkio:/job\n0::/\n") == Controller(1, mine, mine)
    seen_from_inside = controller(mounts, "7:blkio:/docker/8c1\n0::/\n")
    assert seen_from_inside == Controller(1, tmp_path / "blkio", tmp_path / "blkio")


def test_of_the_second_generation_the_nearest_group_that_hands_it_on_is_used(
    tmp_path: Path,
) -> None:
    mounts = (OTHER + SECOND).format(tmp_path)
    top = group(tmp_path / "unified", cgroup_subtree_control="cpu io memory")
    middle = group(top / "slice", cgroup_subtree_control="cpu io")
    home = group(middle / "session", cgroup_subtree_control="")
    assert controller(mounts, "0::/slice/session\n") == Controller(2, middle, home)
    group(middle, cgroup_subtree_control="cpu")
    assert controller(mounts, "0::/slice/session\n") == Controller(2, top, home)
    group(top, cgroup_subtree_control="cpu")
    assert controller(mounts, "0::/slice/session\n") is None


def test_without_a_hierarchy_for_drives_there_is_nothing(tmp_path: Path) -> None:
    assert controller(OTHER.format(tmp_path), "1:cpu,cpuacct:/\n") is None


@pytest.mark.parametrize(
    ("generation", "limit", "counted"),
    [
        (
            1,
            ("blkio.throttle.write_bps_device", "8:0 1000000"),
            (
                "blkio.throttle.io_service_bytes",
                "8:16 Write 9\n8:0 Read 1\n8:0 Write 4096\n",
            ),
        ),
        (
            2,
            ("io.max", "8:0 wbps=1000000"),
            ("io.stat", "8:16 rbytes=1 wbytes=9\n8:0 rbytes=1 wbytes=4096 rios=1 wios=1\n"),
        ),
    ],
)
def test_each_generation_is_told_the_limit_and_asked_in_its_own_words(
    tmp_path: Path, generation: int, limit: tuple[str, str], counted: tuple[str, str]
) -> None:
    control = Controller(generation, tmp_path, tmp_path)
    control.limit(tmp_path, "8:0", 1_000_000)
    assert (tmp_path / limit[0]).read_text() == limit[1]
    (tmp_path / counted[0]).write_text(counted[1])
    assert control.written_bytes(tmp_path, "8:0") == 4096
    assert control.written_bytes(tmp_path, "8:32") == 0


def test_memory_is_no_drive() -> None:
    assert device_of(Path("/proc")) is None


@pytest.fixture
def slow() -> Iterator[Path]:
    assert CONTROL is not None
    place = CONTROL.place / f"{throttles.OWN_GROUPS}test-{os.getpid()}"
    place.mkdir()
    yield place
    dissolve(place, CONTROL.home)


WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
sys.stdin.read(1)
start = time.monotonic()
for _ in range(6):
    os.write(file, bytes(1 << 20))
    os.fsync(file)
print(time.monotonic() - start, flush=True)
sys.stdin.read(1)
"""


@needs_groups
def test_the_kernel_slows_what_is_in_the_group_and_lets_it_go(slow: Path, tmp_path: Path) -> None:
    assert CONTROL is not None
    device = device_of(tmp_path)
    if device is None:
        pytest.skip(f"{tmp_path} is on no drive of its own")
    CONTROL.limit(slow, device, 4 << 20)
    argv = [sys.executable, "-I", "-S", "-c", WRITER, str(tmp_path / "file")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        move([writer.pid], slow)
        assert writer.pid in members(slow)
        assert writer.stdin
        assert writer.stdout
        writer.stdin.write(b"x")
        writer.stdin.flush()
        assert float(writer.stdout.readline()) > 0.9  # 6 MiB at 4 MiB/s
        assert CONTROL.written_bytes(slow, device) >= 6 << 20
        undo = Throttled(name="node-0", group=str(slow), home=str(CONTROL.home))
        assert undo.heal() == "ended the slow flash of node-0"
        assert not slow.exists()
        assert writer.poll() is None
        assert writer.pid in members(CONTROL.home)
        assert undo.heal() is None
        writer.kill()


# Always one process, never the same for long, until its standard input is closed.
CHAIN = """
import os, select
os.read(0, 1)
while not select.select([0], [], [], 0)[0]:
    if os.fork():
        os._exit(0)
"""


@needs_groups
def test_a_group_is_dissolved_while_its_processes_multiply(slow: Path) -> None:
    assert CONTROL is not None
    argv = [sys.executable, "-I", "-S", "-c", CHAIN]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        move([first.pid], slow)
        assert first.stdin
        assert first.stdout
        first.stdin.write(b"x")
        first.stdin.flush()
        first.wait()
        assert members(slow)
        assert dissolve(slow, CONTROL.home)
        assert not slow.exists()
        first.stdin.close()
        first.stdout.read()  # until the last of them has ended


def test_groups_that_are_not_a_runs_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "system.slice"
    other.mkdir()
    with pytest.raises(OSError, match="refuses to dissolve"):
        Throttled(name="node-0", group=str(other), home=str(tmp_path)).heal()
    assert other.exists()
