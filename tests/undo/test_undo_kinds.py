"""Each kind of undo: verified, idempotent, and unable to hit anything else."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chaosspot.undo import Directory, ProcessTree, Undo, ending, procfs
from chaosspot.undo.procfs import Process


@pytest.fixture
def cookie() -> str:
    return f"test/{secrets.token_hex(8)}"


@pytest.fixture
def sleeper(cookie: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        ["sleep", "1000"], env={"CHAOSSPOT_TREE": cookie}, start_new_session=True
    ) as process:
        yield process
        process.kill()


def test_a_tree_is_found_by_its_cookie(sleeper: subprocess.Popen[bytes], cookie: str) -> None:
    tree = ProcessTree(name="node-0", cookie=cookie, boot=procfs.boot_id())
    assert tree.heal() == f"killed 1 process of node-0: {sleeper.pid}"
    assert sleeper.wait(1) == -9
    assert tree.heal() is None


def test_a_tree_is_found_by_its_supervisor(sleeper: subprocess.Popen[bytes]) -> None:
    process = procfs.read(sleeper.pid)
    assert process is not None
    tree = ProcessTree(
        name="node-0",
        cookie="none",
        boot=procfs.boot_id(),
        supervisor=process.pid,
        start_ticks=process.start_ticks,
    )
    assert str(sleeper.pid) in str(tree.heal())
    assert tree.heal() is None


def test_a_part_of_a_cookie_is_not_it(sleeper: subprocess.Popen[bytes], cookie: str) -> None:
    for wrong in (cookie[:-1], cookie + "0", ""):
        assert ProcessTree(name="n", cookie=wrong, boot=procfs.boot_id()).heal() is None
    assert sleeper.poll() is None


def test_a_process_with_the_same_pid_is_not_hit(sleeper: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree(
        name="n", cookie="none", boot=procfs.boot_id(), supervisor=sleeper.pid, start_ticks=1
    )
    assert tree.heal() is None
    assert not ending.send(Process(sleeper.pid, 0, 1, alive=True), 9)
    assert sleeper.poll() is None


def test_processes_do_not_outlive_a_boot(sleeper: subprocess.Popen[bytes], cookie: str) -> None:
    assert ProcessTree(name="node-0", cookie=cookie, boot="another").heal() is None
    assert sleeper.poll() is None


def test_what_cannot_be_killed_is_an_error(
    sleeper: subprocess.Popen[bytes], cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "send", lambda *_: False)
    with pytest.raises(OSError, match=rf"still alive 0.1 s.*pid {sleeper.pid} \(sleep\)"):
        ending.end(None, procfs.TREE, cookie, within_s=0.1)


def test_a_directory_is_removed_once(tmp_path: Path) -> None:
    path = tmp_path / "nodes" / "flash"
    (path / "deep").mkdir(parents=True)
    undo = Directory(path=str(path), within=str(tmp_path))
    assert undo.heal() == f"removed directory {path}"
    assert not path.exists()
    assert undo.heal() is None


def test_a_directory_elsewhere_is_refused(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    (outside / "flash").mkdir(parents=True)
    (run / "link").symlink_to(outside)
    for path in (outside, run / ".." / "outside", run / "link" / "flash", run, run / "x" / ".."):
        (run / "x").mkdir(exist_ok=True)
        with pytest.raises(OSError, match="refuses to remove"):
            Directory(path=str(path), within=str(run)).heal()
    for within in ("/", str(Path.home())):
        with pytest.raises(OSError, match="refuses to remove"):
            Directory(path=str(outside), within=within).heal()
    assert (outside / "flash").exists()


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    (run / "flash").symlink_to(outside)
    assert Directory(path=str(run / "flash"), within=str(run)).heal()
    assert not os.path.lexists(run / "flash")
    assert outside.exists()


@pytest.mark.parametrize(
    "undo",
    [
        ProcessTree(name="n", cookie="c", boot="b", supervisor=1, start_ticks=2),
        Directory(path="/a/b", within="/a"),
    ],
)
def test_records_survive_a_round_trip(undo: Undo) -> None:
    assert msgspec.json.decode(msgspec.json.encode(undo), type=Undo) == undo


def test_a_thread_leader_that_ended_is_not_the_end_of_its_process() -> None:
    code = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    import sys
    import time

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        deadline = time.monotonic() + 5
        while ") Z " not in stat.read_text():
            assert time.monotonic() < deadline
        seen = procfs.read(process.pid)
        assert seen is not None
        assert seen.alive
        assert ending.send(seen, 9)
        process.wait()
