"""What the tests of clusters share: a private state directory, and a census of their own."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from chaosspot.cluster import Launch
from chaosspot.cluster.processes import ProcessCluster
from chaosspot.schedule import Node
from chaosspot.undo import Lease

FAMILY = Path(__file__).with_name("family.py")


class Family:
    """Launches of ``family.py``, and who of them lives."""

    def __init__(self, directory: Path) -> None:
        self.number = str(secrets.randbelow(9 * 10**8) + 10**8)
        self._directory = directory

    def log(self, name: str) -> Path:
        return self._directory / "logs" / f"{name}.log"

    def launch(self, name: str, kind: str, *more: str, ranks: int = 1) -> Launch:
        argv = (sys.executable, "-I", "-S", str(FAMILY), kind, self.number, *more)
        return Launch(argv=argv, environments=({"A": "1"},) * ranks, log=self.log(name))

    def alive(self) -> list[psutil.Process]:
        return [process for process, _ in self._living()]

    def asleep(self) -> int:
        """How many have become what they stay: a signal within execve would be lost."""
        return sum(command[:1] == ["sleep"] for _, command in self._living())

    def _living(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        """Each with its command line, both read while it lived: any may end at any moment."""
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
                if process.pid == os.getpid() or self.number not in command:
                    continue
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
            except psutil.NoSuchProcess:
                continue
            yield process, command


def wait_until(condition: Callable[[], object], *, within_s: float, what: str = "") -> float:
    """Poll until true; returns how long it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within_s:
            raise AssertionError(f"not within {within_s} s: {what or condition}")
        time.sleep(0.005)
    return time.monotonic() - began


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(home))
    return home


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    return run


@pytest.fixture
def lease(run_directory: Path) -> Iterator[Lease]:
    lease = Lease.open(run_directory)
    yield lease
    left = lease.close()
    assert left == []
    assert not lease.directory.exists()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def cluster_in(run_directory: Path, lease: Lease) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncIterator[ProcessCluster]:
        with anyio.fail_after(60):
            async with ProcessCluster(run=run_directory, lease=lease) as cluster:
                yield cluster

    return opened


@pytest.fixture
def family(run_directory: Path) -> Iterator[Family]:
    family = Family(run_directory)
    yield family
    left = family.alive()
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture
def make_node() -> Callable[[str], Node]:
    return lambda name: Node(name=name, zone="a", family="f", pool="spot", role="worker")


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., float]:
    return wait_until
