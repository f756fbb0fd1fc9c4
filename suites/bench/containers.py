# ruff: noqa: T201 - a benchmark prints
"""What nodes in containers cost: python suites/bench/containers.py [--quick]

Three things, each measured from the run's own history: eight containers of the reference trainer,
up and torn down; one alone to its first report; and the memory of 32 of the smallest trainer. Needs
a Docker daemon and root. On a machine that is busy, what is told of time is of that machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

import chaosspot
from chaosspot import history as h
from chaosspot import trainers
from chaosspot.cluster.able import daemon_version
from chaosspot.conductor.observer import Silent
from chaosspot.schedule import ClusterSpec, Group, Schedule
from chaosspot.trainers import Promises
from chaosspot.undo import procfs

MIB = 1 << 20


class Watcher(Silent):
    """Measures when ``nodes`` workers have committed, and remembers when that was."""

    def __init__(self, nodes: int) -> None:
        self.pss_bytes = 0
        self.harness_bytes = 0
        self._nodes = nodes
        self._committed: set[str] = set()

    def record(self, record: h.Record) -> None:
        if not isinstance(record, h.Commit) or len(self._committed) == self._nodes:
            return
        self._committed.add(record.node)
        if len(self._committed) == self._nodes:
            mine = procfs.holders(procfs.RUN, procfs.everyone().values())
            run = max((lease for lease in mine if f"-{os.getpid()}-" in lease), default="")
            self.pss_bytes = sum(pss_bytes(process.pid) for process in mine.get(run, ()))
            self.harness_bytes = pss_bytes(os.getpid())


def pss_bytes(pid: int) -> int:
    """What a process takes of memory, its share of what it shares with others included."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line[:4] == "Pss:")


def undisturbed(trainer: str, nodes: int, folder: Path, *, steps: int) -> tuple[Path, Watcher]:
    """Run a trainer with no fault, and no twin; its run directory, and what was seen of it."""
    known = replace(trainers.load(trainer), promises=Promises())
    plan = Schedule(cluster=ClusterSpec(group=(Group(count=nodes, zones=("a", "b")),)))
    watcher = Watcher(nodes)
    verdict = chaosspot.attack(
        plan,
        name=f"{trainer}-{nodes}",
        trainer=known,
        cluster="containers",
        steps=steps,
        seed=0,
        runs=folder,
        observer=watcher,
    )
    return Path(verdict.run), watcher


def times(run: Path) -> tuple[float, float, float]:
    """Seconds from the run's start to the first and the last worker's report, and to its stop."""
    records = h.read(run / "history.jsonl")
    start_t = next(r.t for r in records if isinstance(r, h.RunStart))
    first: dict[str, float] = {}
    for record in records:
        if isinstance(record, h.Begin | h.Commit | h.Join):
            first.setdefault(record.node, record.t - start_t)
    stop_t = next(r.t for r in records if isinstance(r, h.RunStop)) - start_t
    return min(first.values()), max(first.values()), stop_t


@contextmanager
def timed() -> Iterator[list[float]]:
    took: list[float] = []
    began = time.monotonic()
    yield took
    took.append(time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description="What nodes in containers cost.")
    parser.add_argument("--quick", action="store_true", help="the smallest trainer alone, 8 of it")
    quick = parser.parse_args().quick
    try:
        print(f"{daemon_version()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    except OSError as error:
        print(error, file=sys.stderr)
        return 4
    trainer = "minimal" if quick else "reference"
    with tempfile.TemporaryDirectory(prefix="chaosspot-bench-") as name:
        for nodes in (1, 8):
            with timed() as took:
                run, _ = undisturbed(trainer, nodes, Path(name), steps=1)
            first_s, last_s, stop_s = times(run)
            print(
                f"{nodes} of {trainer}: first report after {first_s:.1f} s, the last node's after "
                f"{last_s:.1f} s; torn down in {took[0] - stop_s:.1f} s, all in {took[0]:.1f} s"
            )
        nodes = 8 if quick else 32
        _, seen = undisturbed("minimal", nodes, Path(name), steps=5)
        print(
            f"{nodes} of minimal: {seen.pss_bytes / MIB:.0f} MiB in all containers, "
            f"{seen.pss_bytes / MIB / nodes:.1f} MiB a node; "
            f"the harness {seen.harness_bytes / MIB:.0f} MiB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
