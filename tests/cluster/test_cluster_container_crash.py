"""The harness dies while its nodes are containers: nothing with its label is left, nor anything
else; what belongs to others is."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from docked import NEEDS_DAEMON, discard, foreign, left_of, running
from traces_left import traces

from chaosspot.undo import docker, heal_dead_runs, heal_lost_containers, procfs

pytestmark = NEEDS_DAEMON

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("container_driver.py")
GONE_S = 60.0  # a busy daemon takes its time
FAULTS = ("", "pause", "full", "cut")


class Driver:
    """Starts ``container_driver.py``, and ends it if the test does not."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self.process: subprocess.Popen[str] | None = None

    def start(self, *fault: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(self._run), *filter(None, fault)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._run,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        return self.process

    def read_until(self, word: str) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        assert any(word in line for line in self.process.stdout), f"it never said {word!r}"

    def kill(self, *, guardian_too: bool) -> None:
        """SIGKILL, to the guardian first so that it cannot act."""
        assert self.process is not None
        harness = psutil.Process(self.process.pid)
        guardians = [p for p in harness.children() if "guardian.py" in " ".join(p.cmdline())]
        for process in [*(guardians if guardian_too else []), harness]:
            process.suspend()
        for process in [*(guardians if guardian_too else []), harness]:
            process.kill()
        self.process.wait()
        if guardian_too:  # each holds the lock of the lease until it is gone
            _, alive = psutil.wait_procs(guardians, timeout=GONE_S)
            assert alive == []


@pytest.fixture
def driver(run_directory: Path) -> Iterator[Driver]:
    driver = Driver(run_directory)
    yield driver
    if driver.process is not None:
        driver.process.kill()
        driver.process.wait()
        assert driver.process.stdout
        driver.process.stdout.close()


@pytest.fixture
def untouched(bystander: str, run_directory: Path) -> set[str]:
    """What the kernel has of containers before there are any of ours."""
    return traces(run_directory)


@pytest.fixture
def bystander() -> Iterator[str]:
    """Somebody else's container, with a label much like ours."""
    which = foreign(f"bystander-{secrets.token_hex(4)}", f"{docker.LEASE}=x", "chaosspot=1")
    yield which
    discard(which)


def see_nothing_left(state_home: Path, run: Path, wait_until: Any, before: set[str]) -> None:
    """A new start, and then a look: a guardian that is at work still is waited for.

    ``before``: the traces of containers that were there already. None may have come or gone.
    """

    def healed() -> bool:
        told = [*heal_dead_runs(), *heal_lost_containers()]
        assert not [problem for each in told for problem in each.problems]
        leases = state_home / "leases"
        return not (leases.is_dir() and list(leases.glob("[!.]*")))

    wait_until(healed, within_s=GONE_S, what="leases are left")
    wait_until(
        lambda: not heal_lost_containers() and not left_of(state_home),
        within_s=GONE_S,
        what="containers or networks are left",
    )
    ours = [
        cookie
        for cookie, holders in procfs.holders(procfs.RUN, procfs.everyone().values()).items()
        if str(run) in "".join(_command(p.pid) for p in holders)
    ]
    assert ours == []
    assert list(run.glob("nodes/*/flash")) == []
    wait_until(
        lambda: traces(run) == before,
        within_s=GONE_S,
        what=f"rules, links or mounts differ from {sorted(before)}",
    )


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def killed_at(moment: random.Random, driver: Driver) -> None:
    """Start it, and kill it somewhere between its first word and some time after its last."""
    fault = moment.choice(FAULTS)
    driver.start(fault)
    driver.read_until(moment.choice(["open", "open", "entered", "entered", "one", "acted"]))
    time.sleep(moment.uniform(0.0, 1.5))
    driver.kill(guardian_too=moment.random() < 0.5)


def test_the_guardian_leaves_nothing_of_a_killed_harness(
    driver: Driver,
    state_home: Path,
    run_directory: Path,
    wait_until: Any,
    bystander: str,
    untouched: set[str],
) -> None:
    driver.start("pause")
    driver.read_until("acted")
    ours = traces(run_directory) - untouched
    assert {trace.split()[0] for trace in ours} == {"rule", "link", "mount"}  # so they are seen
    assert len(left_of(state_home)) == 5  # two containers, two zones, and what is between
    driver.kill(guardian_too=False)
    wait_until(lambda: not left_of(state_home), within_s=GONE_S)
    see_nothing_left(state_home, run_directory, wait_until, untouched)
    assert running(bystander)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 20))]
)
def test_killed_at_any_moment(
    driver: Driver,
    state_home: Path,
    run_directory: Path,
    wait_until: Any,
    bystander: str,
    untouched: set[str],
    seed: int,
) -> None:
    killed_at(random.Random(seed), driver)
    see_nothing_left(state_home, run_directory, wait_until, untouched)
    assert running(bystander)


@pytest.mark.long
def test_the_next_start_removes_what_lost_everybody(
    driver: Driver,
    state_home: Path,
    run_directory: Path,
    wait_until: Any,
    untouched: set[str],
) -> None:
    driver.start()
    driver.read_until("acted")
    driver.kill(guardian_too=True)
    told = heal_dead_runs()
    assert len(told) == 1
    assert not told[0].by_guardian
    assert "things of the docker daemon" in str(told[0])
    assert left_of(state_home) == []
    see_nothing_left(state_home, run_directory, wait_until, untouched)


@pytest.mark.long
def test_ctrl_c_leaves_nothing(
    driver: Driver,
    state_home: Path,
    run_directory: Path,
    wait_until: Any,
    untouched: set[str],
) -> None:
    process = driver.start()
    driver.read_until("acted")
    process.send_signal(signal.SIGINT)
    assert process.wait(GONE_S) != 0
    assert left_of(state_home) == []
    assert heal_dead_runs() == []


def test_what_has_no_lease_any_more_is_removed_and_what_has_one_is_not(
    state_home: Path, tmp_path: Path
) -> None:
    leases = state_home / "leases"
    lost, held = (f"20260101T000000-1-{secrets.token_hex(4)}" for _ in range(2))
    (leases / held).mkdir(parents=True)
    made = [
        foreign(f"lost-{name[-8:]}", f"{docker.LEASES}={leases}", f"{docker.LEASE}={name}")
        for name in (lost, held)
    ]
    try:
        told = heal_lost_containers()
        assert [each.lease for each in told] == [lost]
        assert "removed 1 thing" in str(told[0])
        assert left_of(state_home) == [f"lost-{held[-8:]}"]
        assert running(made[1])
    finally:
        discard(made[1])
