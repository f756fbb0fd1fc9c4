"""The harness dies, at any moment and in any way: nothing of the run is left, and it is told."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaosspot.undo import Healed, Lease, heal_dead_runs

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("driver.py")
GONE_S = 5.0


class Driver:
    """Starts ``driver.py`` in a folder of its own, and ends it if the test does not."""

    def __init__(self, run: Path, number: str, elsewhere: Path) -> None:
        self.run = run
        self._number = number
        self._elsewhere = elsewhere
        self.process: subprocess.Popen[str]

    def start(self, *kind: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(self.run), self._number, *kind],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._elsewhere,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        return self.process

    def read_until(self, word: str) -> str:
        assert self.process.stdout
        for line in self.process.stdout:
            if word in line:
                return line
        raise AssertionError(f"the driver ended before it said {word!r}")


@pytest.fixture
def driver(run_directory: Path, family: Any, tmp_path: Path) -> Iterator[Driver]:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    driver = Driver(run_directory, family.number, elsewhere)
    yield driver
    if hasattr(driver, "process"):
        driver.process.kill()
        driver.process.wait()
        assert driver.process.stdout
        driver.process.stdout.close()


@pytest.fixture
def others(state_home: Path) -> Callable[[], list[int]]:
    """Guardians of this test, and any process that holds a cookie of one of its leases."""

    def find() -> list[int]:
        leases = state_home / "leases"
        ids = {path.name for path in leases.iterdir()} if leases.is_dir() else set()
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                guards = any(str(leases) in word for word in process.cmdline())
                if guards or process.environ().get("CHAOSSPOT_RUN") in ids:
                    found.append(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    return find


def told(count: int) -> list[Healed]:
    """What starts tell; a lock is free a moment after its holder stops showing a command line."""
    healed = heal_dead_runs()
    deadline = time.monotonic() + 2.0
    while len(healed) < count and time.monotonic() < deadline:
        time.sleep(0.005)
        healed += heal_dead_runs()
    return healed


def test_nothing_of_a_run_lives_after_its_harness_was_killed(
    driver: Driver, family: Any, wait_until: Any, others: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    process = driver.start()
    driver.read_until("started")
    wait_until(lambda: len(family.alive()) == 25, within_s=20)  # 3 nodes, 2 ranks, 4 each; driver
    process.kill()
    process.wait()
    wait_until(lambda: not family.alive() and not others(), within_s=GONE_S)
    monkeypatch.chdir(tmp_path)
    (healed,) = told(1)
    assert healed.run == driver.run
    assert healed.owner_pid == process.pid
    assert healed.by_guardian
    assert healed.problems == ()
    text = str(healed)
    for name in ("node-0", "node-1", "node-2"):
        assert f"processes of {name}" in text
        assert not (driver.run / "nodes" / name / "flash").exists()
    assert heal_dead_runs() == []


@pytest.mark.parametrize("seed", range(20))
def test_killed_at_any_moment(
    driver: Driver, family: Any, wait_until: Any, others: Any, state_home: Path, seed: int
) -> None:
    process = driver.start()
    # Half of them while it imports and opens its lease, half while it starts its nodes.
    if seed % 2:
        driver.read_until("open")
    time.sleep(random.Random(seed).uniform(0.0, 0.25))
    process.kill()
    process.wait()
    leases = state_home / "leases"
    held = list(leases.glob("[!.]*")) if leases.is_dir() else []
    wait_until(lambda: not family.alive() and not others(), within_s=GONE_S)
    healed = told(len(held))
    assert [h.lease for h in healed] == [path.name for path in held]
    assert all((h.run, h.owner_pid, h.problems) == (driver.run, process.pid, ()) for h in healed)
    assert list(driver.run.glob("nodes/*/flash")) == []
    assert heal_dead_runs() == []
    assert list(leases.glob("[!.]*")) == []


def test_a_reader_of_its_output_is_not_kept_waiting(
    driver: Driver, family: Any, wait_until: Any
) -> None:
    process = driver.start()
    with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.PIPE) as cat:
        assert cat.stdout
        while b"started" not in cat.stdout.readline():
            pass
        assert process.stdout
        process.stdout.close()
        process.kill()
        cat.communicate(timeout=GONE_S)
    wait_until(lambda: not family.alive(), within_s=GONE_S)


def test_supervisors_do_without_harness_and_guardian(
    driver: Driver, family: Any, wait_until: Any, others: Any
) -> None:
    process = driver.start()
    driver.read_until("started")
    guardian = psutil.Process(process.pid).children()[0]
    guardian.kill()
    process.kill()
    process.wait()
    wait_until(lambda: not family.alive() and not others(), within_s=GONE_S)
    (healed,) = told(1)
    assert not healed.by_guardian
    assert (healed.run, healed.owner_pid) == (driver.run, process.pid)
    assert heal_dead_runs() == []


def test_the_next_start_ends_what_lost_everybody(
    driver: Driver, family: Any, wait_until: Any, others: Any
) -> None:
    process = driver.start("polite")
    driver.read_until("started")
    wait_until(lambda: family.asleep() == 6, within_s=20)
    harness = psutil.Process(process.pid)
    guardian = harness.children()[0]
    everybody = [harness, guardian, *guardian.children()]
    assert len(everybody) == 5
    for member in everybody:  # so that none can act on the death of another
        member.suspend()
    for member in everybody:
        member.kill()
    process.wait()
    assert len(family.alive()) == 12
    (healed,) = told(1)
    assert not family.alive()
    assert not healed.by_guardian
    assert "killed 4 processes of node-0" in str(healed)
    assert heal_dead_runs() == []


def test_ctrl_c_leaves_nothing(driver: Driver, family: Any, wait_until: Any, others: Any) -> None:
    process = driver.start()
    driver.read_until("started")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(10) != 0
    assert family.alive() == []
    assert others() == []
    assert heal_dead_runs() == []


def test_a_live_run_is_left_alone(
    driver: Driver, family: Any, wait_until: Any, tmp_path: Path
) -> None:
    process = driver.start()
    driver.read_until("started")
    wait_until(lambda: len(family.alive()) == 25, within_s=20)
    with Lease.open(tmp_path / "mine") as mine:
        assert heal_dead_runs() == []
        assert len(family.alive()) == 25
        process.kill()
        process.wait()
        wait_until(lambda: not family.alive(), within_s=GONE_S)
        wait_until(lambda: len(heal_dead_runs()) == 1, within_s=GONE_S)
        assert mine.directory.exists()
        mine.kept(mine.promise(_nothing(tmp_path)))
        assert mine.close() == []


def _nothing(tmp_path: Path) -> Any:
    from chaosspot.undo import Directory

    return Directory(path=str(tmp_path / "none"), within=str(tmp_path))
