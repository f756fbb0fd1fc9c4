"""Undoing pauses and mounts: verified, idempotent, and unable to hit anything else."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from chaosspot.undo import Mount, Paused, Undo, mounts, pausing, procfs

needs_mounts = pytest.mark.skipif(not mounts.may_mount(), reason="may not mount")


@pytest.fixture
def cookie() -> str:
    return f"test/{secrets.token_hex(8)}"


@pytest.fixture
def asleep(cookie: str) -> Iterator[subprocess.Popen[bytes]]:
    """A stopped process that holds the cookie."""
    with subprocess.Popen(["sleep", "1000"], env={"CHAOSSPOT_TREE": cookie}) as process:
        psutil.Process(process.pid).suspend()
        deadline = time.monotonic() + 5.0
        while not procfs.stopped(process.pid):
            assert time.monotonic() < deadline
        yield process
        process.kill()


def paused(cookie: str, **changes: Any) -> Paused:
    fields = {"name": "node-0", "cookie": cookie, "boot": procfs.boot_id()}
    return Paused(**{**fields, "supervisor": 1 << 22, "start_ticks": 1, **changes})


def test_a_paused_tree_goes_on(asleep: subprocess.Popen[bytes], cookie: str) -> None:
    undo = paused(cookie)
    assert undo.describe() == "pause of node-0"
    assert undo.heal() == "resumed 1 process of node-0"
    assert psutil.Process(asleep.pid).status() != psutil.STATUS_STOPPED
    assert undo.heal() is None


def test_somebody_elses_processes_stay_stopped(
    asleep: subprocess.Popen[bytes], cookie: str
) -> None:
    for undo in (paused(cookie + "0"), paused(cookie, boot="another")):
        assert undo.heal() is None
    assert paused("none", supervisor=asleep.pid, start_ticks=1).heal() is None
    assert procfs.stopped(asleep.pid)


def test_what_stays_stopped_is_an_error(
    asleep: subprocess.Popen[bytes], cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "send", lambda *_: True)
    monkeypatch.setattr(pausing, "_WITHIN_S", 0.1)
    with pytest.raises(OSError, match=rf"still stopped 0.1 s after SIGCONT: pids \[{asleep.pid}\]"):
        paused(cookie).heal()


def test_a_process_with_a_thread_that_runs_is_not_stopped() -> None:
    assert not procfs.stopped(os.getpid())


@pytest.fixture
def source() -> str:
    return f"chaosspot/test-{secrets.token_hex(4)}"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory whose name is hard to write into a table."""
    place = tmp_path / "a b\\c\td"
    place.mkdir()
    yield place
    while place.is_mount():
        subprocess.run(["umount", "-l", str(place)], check=True)


@needs_mounts
def test_a_mount_is_undone_once(place: Path, source: str) -> None:
    undo = Mount(path=str(place), source=source)
    assert undo.heal() is None
    for _ in range(2):
        mounts.mount_tmpfs(place, source=source, size_bytes=1 << 16)
    assert mounts.mounted(place, source) == 2
    assert undo.heal() == f"unmounted file system at {place}"
    assert not place.is_mount()
    assert undo.heal() is None


@needs_mounts
def test_a_busy_mount_is_detached(place: Path, source: str) -> None:
    mounts.mount_tmpfs(place, source=source, size_bytes=1 << 16)
    with (place / "file").open("w"):
        assert Mount(path=str(place), source=source).heal()
        assert not place.is_mount()


@needs_mounts
def test_a_mount_of_another_run_or_of_nobody_is_left_alone(place: Path, source: str) -> None:
    mounts.mount_tmpfs(place, source=source, size_bytes=1 << 16)
    assert Mount(path=str(place), source=source + "0").heal() is None
    assert Mount(path=str(place.parent), source=source).heal() is None
    for foreign in ("tmpfs", "", "/dev/vda"):
        with pytest.raises(OSError, match=r"refuses to unmount .* is none of a run's"):
            Mount(path=str(place), source=foreign).heal()
    assert place.is_mount()


@needs_mounts
def test_what_cannot_be_mounted_is_an_error_with_its_path(tmp_path: Path, source: str) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        mounts.mount_tmpfs(tmp_path / "nowhere", source=source, size_bytes=1 << 16)


def test_the_right_to_mount_is_that_of_the_kernel(tmp_path: Path, source: str) -> None:
    try:
        mounts.mount_tmpfs(tmp_path, source=source, size_bytes=1 << 16)
    except PermissionError:
        assert not mounts.may_mount()
    else:
        assert mounts.unmount(tmp_path, source)
        assert mounts.may_mount()


@pytest.mark.parametrize("undo", [paused("c"), Mount(path="/a/b", source="chaosspot/x")])
def test_records_survive_a_round_trip(undo: Undo) -> None:
    assert msgspec.json.decode(msgspec.json.encode(undo), type=Undo) == undo
