"""Leases: promises are on disk first, and are kept by whoever is left to keep them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaosspot.undo import Directory, Lease, StateError, heal_dead_runs, state
from chaosspot.undo.journal import Journal


def wait_until(condition: Callable[[], object], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.005)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    return run


@pytest.fixture
def scratch(run: Path) -> Directory:
    (run / "scratch").mkdir()
    return Directory(path=str(run / "scratch"), within=str(run))


def lines(lease_directory: Path) -> list[Any]:
    return [json.loads(line) for line in (lease_directory / "undo.jsonl").read_text().splitlines()]


def dead(run: Path, promised: list[Directory]) -> Path:
    """The lease of a harness that died together with its guardian."""
    pid = os.fork()
    if pid == 0:
        lease = Lease.open(run)
        for undo in promised:
            lease.promise(undo)
        os.kill(lease._guardian.pid, signal.SIGKILL)
        lease._guardian.wait()
        os._exit(0)
    os.waitpid(pid, 0)
    (directory,) = state.leases().iterdir()
    return directory


def test_a_promise_is_on_disk_when_it_is_given(run: Path, scratch: Directory) -> None:
    with Lease.open(run) as lease:
        token = lease.promise(scratch)
        assert lines(lease.directory)[0]["undo"]["path"] == scratch.path
        owner = json.loads((lease.directory / "lease.json").read_text())
        assert (owner["pid"], owner["run"]) == (os.getpid(), str(run))
        scratch.heal()
        lease.kept(token)
        assert lease.close() == []
        assert lease.close() == []
        assert not lease.directory.exists()


def test_closing_heals_what_was_left_and_says_so(run: Path, scratch: Directory) -> None:
    lease = Lease.open(run)
    lease.promise(scratch)
    assert lease.close() == [f"removed directory {scratch.path}"]
    assert not Path(scratch.path).exists()
    assert not lease.directory.exists()


def test_leaving_with_something_left_warns(run: Path, scratch: Directory) -> None:
    with pytest.warns(ResourceWarning, match="removed directory"), Lease.open(run) as lease:
        lease.promise(scratch)


def test_what_cannot_be_healed_stays_for_the_next_start(run: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    lease = Lease.open(run)
    lease.promise(Directory(path=str(tmp_path / "outside"), within=str(run)))
    (left,) = lease.close()
    assert "could not undo directory" in left
    for _ in range(2):
        (healed,) = heal_dead_runs()
        assert "refuses to remove" in healed.problems[0]
        assert lease.directory.exists()
    (tmp_path / "outside").rmdir()
    (healed,) = heal_dead_runs()
    assert healed.problems == ()
    assert not lease.directory.exists()


def test_the_guardian_ignores_polite_signals_and_is_needed(run: Path, scratch: Directory) -> None:
    lease = Lease.open(run)
    status = Path(f"/proc/{lease._guardian.pid}/status")
    ignored = 1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGHUP - 1)

    def mask() -> int:
        (line,) = [x for x in status.read_text().splitlines() if x.startswith("SigIgn")]
        return int(line.split()[1], 16)

    wait_until(lambda: mask() & ignored == ignored)
    # A reader of the harness's output must not wait for it, and Ctrl-C must not reach it.
    for descriptor in (1, 2):
        opened = os.readlink(f"/proc/{lease._guardian.pid}/fd/{descriptor}")
        assert opened == str(lease.directory / "guardian.log")
    assert os.getsid(lease._guardian.pid) == lease._guardian.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        lease._guardian.send_signal(number)
    lease.kept(lease.promise(scratch))
    lease._guardian.kill()
    lease._guardian.wait()
    with pytest.raises(OSError, match="guardian"):
        lease.promise(scratch)
    (left,) = lease.close()
    assert "guardian" in left


def test_the_death_of_the_guardian_is_told_once_and_does_not_stop_the_healing(
    run: Path, scratch: Directory
) -> None:
    lease = Lease.open(run)
    lease.promise(scratch)
    assert lease.death() is None
    lease._guardian.kill()
    select.select([lease.control], [], [], 5.0)
    death = lease.death()
    assert death == f"the guardian of this run (pid {lease._guardian.pid}) died, killed by SIGKILL"
    assert lease.close() == [f"removed directory {scratch.path}", death]
    assert lease.death() == death
    assert lease.stuck == ()
    assert not Path(scratch.path).exists()
    assert not lease.directory.exists()


def test_a_guardian_that_does_not_answer_counts_as_dead(
    run: Path, scratch: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaosspot.undo.lease._DISMISS_S", 0.2)
    lease = Lease.open(run)
    lease.promise(scratch)
    lease._guardian.send_signal(signal.SIGSTOP)
    assert lease.death() is None
    lease.close()
    assert "it did not go when it was dismissed" in (lease.death() or "")
    assert not Path(scratch.path).exists()


def test_a_guardian_that_was_dismissed_did_not_die(run: Path) -> None:
    lease = Lease.open(run)
    assert lease.close() == []
    assert lease.death() is None


def test_what_could_not_be_undone_is_told_apart(run: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    lease = Lease.open(run)
    lease.promise(Directory(path=str(tmp_path / "outside"), within=str(run)))
    assert list(lease.stuck) == []
    left = lease.close()
    assert list(lease.stuck) == left
    (tmp_path / "outside").rmdir()
    assert [healed.problems for healed in heal_dead_runs()] == [()]


@pytest.mark.parametrize("at", ["leases", "leases/under"])
def test_a_state_directory_that_is_a_file_is_refused_by_name(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    (tmp_path / "place").mkdir()
    file = tmp_path / "place" / "leases"
    file.touch()
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str((tmp_path / "place" / at).parent))
    with pytest.raises(StateError, match="place/leases"):
        Lease.open(run)
    with pytest.raises(StateError, match="place/leases"):
        state.ready()
    with pytest.raises(StateError, match="place/leases"):
        heal_dead_runs()


def test_trying_the_state_directory_out_leaves_nothing(state_home: Path) -> None:
    assert state.ready() == state_home / "leases"
    assert list(state.ready().iterdir()) == []


def test_a_full_disk_names_the_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root alone")
    request.addfinalizer(lambda: subprocess.run(["umount", str(small)], check=True))
    journal = Journal(small / "undo.jsonl")
    with pytest.raises(OSError, match="No space left") as caught:
        journal.promise(Directory(path="/x" * 100_000, within="/"))
    assert caught.value.filename == str(small / "undo.jsonl")
    journal.close()


def test_a_forked_child_does_not_close_its_parents_lease(run: Path, scratch: Directory) -> None:
    lease = Lease.open(run)
    lease.promise(scratch)
    pid = os.fork()
    if pid == 0:
        os._exit(len(lease.close()))
    assert os.waitpid(pid, 0)[1] == 0
    assert Path(scratch.path).exists()
    assert lease.close() == [f"removed directory {scratch.path}"]


def test_a_forked_child_does_not_hide_the_death_of_the_harness(
    run: Path, scratch: Directory
) -> None:
    """It holds copies of the control socket and of the lock for as long as it lives."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        lease = Lease.open(run)
        lease.promise(scratch)
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        os.write(write, str(child).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    child = int(os.read(read, 100))
    os.close(read)
    os.close(write)
    try:
        wait_until(lambda: not Path(scratch.path).exists())
    finally:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: [healed.by_guardian for healed in heal_dead_runs()] == [True])


def test_a_dead_run_is_healed_and_told_once(run: Path, scratch: Directory) -> None:
    directory = dead(run, [scratch])
    (healed,) = heal_dead_runs()
    assert healed.run == run
    assert healed.done == (f"removed directory {scratch.path}",)
    assert not healed.by_guardian
    assert str(run) in str(healed)
    assert not directory.exists()
    assert heal_dead_runs() == []


def test_a_live_lease_is_not_touched(run: Path, scratch: Directory, tmp_path: Path) -> None:
    with Lease.open(run) as one, Lease.open(tmp_path / "two") as two:
        token = one.promise(scratch)
        assert heal_dead_runs() == []
        assert two.close() == []
        assert heal_dead_runs() == []
        assert Path(scratch.path).exists()
        scratch.heal()
        one.kept(token)


def test_a_torn_last_line_never_acted(run: Path, scratch: Directory) -> None:
    directory = dead(run, [scratch])
    with open(directory / "undo.jsonl", "a") as file:
        file.write('{"token": 1, "undo": {"kind": "direc')
    (healed,) = heal_dead_runs()
    assert healed.problems == ()
    assert len(healed.done) == 1


def test_a_damaged_line_does_not_stop_the_others(
    run: Path, scratch: Directory, state_home: Path
) -> None:
    directory = dead(run, [scratch])
    text = (directory / "undo.jsonl").read_text()
    (directory / "undo.jsonl").write_text(f'garbage\n{text}{{"token": 7, "undo": {{"kind": 1}}}}\n')
    (healed,) = heal_dead_runs()
    assert not Path(scratch.path).exists()
    assert len(healed.problems) == 2
    assert "undo.jsonl:1: not an undo record" in healed.problems[0]
    assert heal_dead_runs() == []
    assert (state_home / "broken" / directory.name / "undo.jsonl").exists()


@pytest.mark.parametrize("damage", ["", "{", "[]", "\0" * 50, '{"id": 1}'])
def test_a_damaged_lease_still_heals(run: Path, scratch: Directory, damage: str) -> None:
    directory = dead(run, [scratch])
    (directory / "lease.json").write_text(damage)
    (healed,) = heal_dead_runs()
    assert not Path(scratch.path).exists()
    assert healed.run is None
    assert "broken lease" in healed.problems[0]
    assert directory.name in str(healed)
    assert heal_dead_runs() == []


def test_files_that_are_missing_or_strange(run: Path, scratch: Directory) -> None:
    directory = dead(run, [scratch])
    for name in ("lease.json", "lock"):
        (directory / name).unlink()
    (directory.parent / "a file").write_text("x")
    (directory.parent / "empty").mkdir()
    healed = {item.lease: item for item in heal_dead_runs()}
    assert set(healed) == {directory.name, "empty"}
    assert not Path(scratch.path).exists()
    assert heal_dead_runs() == []


def test_processes_are_found_without_any_record(run: Path) -> None:
    directory = dead(run, [])
    (directory / "undo.jsonl").unlink()
    with subprocess.Popen(["sleep", "1000"], env={"CHAOSSPOT_RUN": directory.name}) as process:
        (healed,) = heal_dead_runs()
        assert process.wait(1) == -9
    assert str(process.pid) in healed.done[0]


def test_amended_promises_replace_each_other(run: Path, scratch: Directory) -> None:
    lease = Lease.open(run)
    token = lease.promise(Directory(path=str(run / "other"), within=str(run)))
    lease.amend(token, scratch)
    assert lease.close() == [f"removed directory {scratch.path}"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CHAOSSPOT_STATE_HOME": "/s"}, "/s/leases"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/chaosspot/leases"),
        ({"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/chaosspot/leases"),
        ({"HOME": "/h"}, "/h/.local/state/chaosspot/leases"),
    ],
)
def test_where_leases_are(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHAOSSPOT_STATE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert state.leases() == Path(expected)


def test_an_abandoned_half_lease_is_removed_when_it_is_old(state_home: Path) -> None:
    young, old = (state_home / "leases" / name for name in (".new-young", ".closed-old"))
    for path in (young, old):
        path.mkdir(parents=True)
    os.utime(old, (1, 1))
    assert heal_dead_runs() == []
    assert young.exists()
    assert not old.exists()
