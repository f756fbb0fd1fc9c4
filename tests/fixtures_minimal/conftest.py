"""Starts real processes of the minimal trainer and reads their events."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = ROOT / "fixtures" / "trainers" / "minimal.py"
SOLO = MINIMAL.with_name("solo.py")
Event = dict[str, Any]
T = TypeVar("T")


def wait_for(what: str, ask: Callable[[], T], timeout_s: float = 60.0) -> T:
    """The first true answer, or a failure that names what did not come."""
    give_up_s = time.monotonic() + timeout_s
    while not (answer := ask()):
        if time.monotonic() > give_up_s:
            pytest.fail(f"{what}: not within {timeout_s} s")
        time.sleep(0.005)
    return answer


def stays(ask: Callable[[], bool], for_s: float) -> bool:
    """Whether the answer is true all the time."""
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        if not ask():
            return False
        time.sleep(0.005)
    return True


class Run:
    """One store, one coordinator, and workers by name; everything dies with it."""

    wait_for = staticmethod(wait_for)
    stays = staticmethod(stays)

    def __init__(self, directory: Path, *, world: int, step_s: float = 0.005) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.events_directory = directory / "events"
        self.events_directory.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}{os.pathsep}{MINIMAL.parent}",
            "OPENBLAS_NUM_THREADS": "1",
            "CHAOSSPOT_COORDINATOR": self.address,
            "CHAOSSPOT_STORE": str(self.store),
            "CHAOSSPOT_EVENTS": str(self.events_directory),
            "CHAOSSPOT_WORLD": str(world),
            "MINIMAL_STEP_S": str(step_s),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start_coordinator()

    def start_coordinator(self) -> None:
        self._start("coordinator", [MINIMAL.with_name("sum_server.py")], {})

    def start(
        self, *names: str, script: Path = MINIMAL, steps: int = 10**9, **environment: str
    ) -> None:
        for name in names:
            self._start(name, [script, "--steps", steps], {"CHAOSSPOT_NODE": name, **environment})

    def _start(self, name: str, arguments: list[Any], environment: dict[str, str]) -> None:
        with (self.directory / f"{name}.log").open("w") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                env=self.environment | environment,
                stderr=log,
            )

    def kill(self, *names: str, sig: int = signal.SIGKILL) -> None:
        for name in names:
            self.processes[name].send_signal(sig)

    def end(self, name: str) -> tuple[int, str]:
        """Exit status and standard error, once the process has ended."""
        wait_for(f"the end of {name}", lambda: self.processes[name].poll() is not None)
        error = (self.directory / f"{name}.log").read_text()
        return self.processes[name].returncode, error

    def events(self, *kinds: str, node: str | None = None) -> list[Event]:
        """In the order of time; a torn last line is not there yet."""
        found = []
        for path in self.events_directory.glob("*.jsonl"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    found.append(json.loads(line))
        wanted = [e for e in found if e["event"] in kinds and node in (None, e["node"])]
        return sorted(wanted, key=lambda event: event["t"])

    def step_of(self, node: str) -> int:
        return max((event["step"] for event in self.events("commit", node=node)), default=0)

    def reach(self, step: int, *nodes: str) -> None:
        for node in nodes:
            wait_for(f"step {step} of {node}", lambda node=node: self.step_of(node) >= step)

    def abandoned(self, *nodes: str) -> list[tuple[str, int, int]]:
        """Attempts that these nodes began and did not commit, but for the ones still under way."""
        left = []
        for node in nodes:
            begun = [(e["step"], e["generation"]) for e in self.events("begin", node=node)]
            done = {(e["step"], e["generation"]) for e in self.events("commit", node=node)}
            left += [(node, *attempt) for attempt in begun[:-1] if attempt not in done]
        return left

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(**options: Any) -> Run:
        runs.append(Run(tmp_path / f"run-{len(runs)}", **options))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Digests by step of a single worker that nothing happens to."""
    return digests(tmp_path_factory.mktemp("undisturbed"), MINIMAL, steps=500)


@pytest.fixture(scope="session")
def undisturbed_solo(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The same of the trainer that has no coordinator."""
    return digests(tmp_path_factory.mktemp("undisturbed-solo"), SOLO, steps=200)


def digests(directory: Path, script: Path, *, steps: int) -> dict[int, str]:
    run = Run(directory, world=1, step_s=0.0)
    try:
        run.start("alone", script=script, steps=steps)
        assert run.end("alone") == (0, "")
        return {event["step"]: event["digest"] for event in run.events("commit")}
    finally:
        run.close()
