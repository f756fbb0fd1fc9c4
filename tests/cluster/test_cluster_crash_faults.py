"""The harness dies while a node is paused or its flash is full or slow: all is undone, and told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaosspot.cluster.throttle import lacking
from chaosspot.undo import Healed, heal_dead_runs, mounts, throttles

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("driver.py")
GONE_S = 5.0
NAMES = ("node-0", "node-1", "node-2")

needs_mounts = pytest.mark.skipif(not mounts.may_mount(), reason="may not mount")
needs_groups = pytest.mark.skipif(lacking(Path("/tmp")) is not None, reason="no slow drive here")
FAULTS = [
    "pause",
    pytest.param("full", marks=needs_mounts),
    pytest.param("slow", marks=needs_groups),
]


@pytest.fixture
def start(
    run_directory: Path, family: Any, tmp_path: Path
) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start ``driver.py`` and wait until it has done what it was told to do."""
    started = []

    def start(fault: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(run_directory), family.number, "polite", fault],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout
        assert "acted\n" in iter(process.stdout.readline, "")
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def mounted_below(folder: Path) -> int:
    with open("/proc/self/mountinfo") as table:
        return sum(f" {folder}/" in line for line in table)


def slowed() -> set[int]:
    """Pids of whoever is in a group of a run's."""
    control = throttles.controller()
    groups = control.place.glob(f"{throttles.OWN_GROUPS}*") if control else ()
    return {pid for group in groups for pid in throttles.members(group)}


def undone(fault: str, run: Path, name: str) -> str:
    """What is said of the node when the next start had to undo it."""
    return {
        "pause": f"resumed 4 processes of {name}",
        "full": f"unmounted file system at {run}/nodes/{name}/flash",
        "slow": f"ended the slow flash of {name}",
    }[fault]


def told(within_s: float = GONE_S) -> Healed:
    """What the next start tells, as soon as it may: the guardian holds the lock while it works."""
    deadline = time.monotonic() + within_s
    while True:
        if healed := heal_dead_runs():
            (only,) = healed
            return only
        assert time.monotonic() < deadline
        time.sleep(0.005)


def in_force(fault: str, run: Path, family: Any, harness: int) -> bool:
    if fault == "full":
        return mounted_below(run) == 3
    if fault == "slow":
        return len(slowed() & {process.pid for process in family.alive()}) == 12
    ranks = [process for process in family.alive() if process.pid != harness]
    return len(ranks) == 12 and {p.status() for p in ranks} == {psutil.STATUS_STOPPED}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guardian_undoes_it_and_the_next_start_names_it(
    start: Any, family: Any, wait_until: Any, run_directory: Path, fault: str
) -> None:
    harness = start(fault)
    assert in_force(fault, run_directory, family, harness.pid)
    harness.kill()
    harness.wait()
    wait_until(lambda: not family.alive() and not mounted_below(run_directory), within_s=GONE_S)
    healed = told()
    assert healed.by_guardian
    assert healed.problems == ()
    for name in NAMES:
        mine = f"pause of {name}" if fault == "pause" else undone(fault, run_directory, name)
        assert mine in str(healed)
        assert not (run_directory / "nodes" / name).exists()
    assert heal_dead_runs() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_next_start_undoes_what_nobody_was_left_to_undo(
    start: Any, family: Any, run_directory: Path, fault: str
) -> None:
    harness = start(fault)
    everybody = [psutil.Process(harness.pid)]
    everybody += everybody[0].children()
    everybody += everybody[1].children()
    assert len(everybody) == 5  # the guardian and three supervisors
    for member in everybody:  # so that none can act on the death of another
        member.suspend()
    for member in everybody:
        member.kill()
    harness.wait()
    assert in_force(fault, run_directory, family, harness.pid)
    healed = told()
    assert not healed.by_guardian
    assert healed.problems == ()
    for name in NAMES:
        assert undone(fault, run_directory, name) in str(healed)
        assert f"killed 4 processes of {name}" in str(healed)
    assert family.alive() == []
    assert mounted_below(run_directory) == 0
    assert list(run_directory.glob("nodes/*")) == []
    assert heal_dead_runs() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_ctrl_c_undoes_it(start: Any, family: Any, run_directory: Path, fault: str) -> None:
    harness = start(fault)
    os.killpg(harness.pid, signal.SIGINT)
    assert harness.wait(10) != 0
    assert family.alive() == []
    assert mounted_below(run_directory) == 0
    assert heal_dead_runs() == []
