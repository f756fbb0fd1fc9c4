"""Whether an exploration finds what is wrong with each sick trainer, from drawn schedules alone.

Every trainer of ``suites/sick`` is explored with one seed and one budget. A line each: whether a
failure was found and by which oracle, after how many attacks and seconds, in how many more it was
made smaller, how many faults are left, and how many of 5 replays failed again. One that fails
without any fault is not explored further. Of those that were not found it says which kinds of fault
the bug needs and which of them never had an effect. Then how many attacks a minute are made, of the
smallest trainer with kills alone. Exits with 1 if one was not found, or something else than its bug
was.

    python suites/bench/explore.py [--budget 5m] [--seed 1] [--only NAME ...] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from calibrate import show, table

from chaosspot import content, schedule, trainers
from chaosspot.explore.running import Report, explore
from chaosspot.trainers import Sick

HEAD = [
    "trainer",
    "must",
    "found",
    "by",
    "after",
    "seconds",
    "smaller in",
    "faults",
    "nodes",
    "again",
    "missing",
]
MOST_SHRINKS = 30
LEAST_RATE = 15
RATE_FOR = "90s"
FOUND, UNDISTURBED = "yes", "undisturbed"
FIRST = (  # quick ones
    "torn",
    "newest-by-name",
    "two-files",
    "crash-loop",
    "false-zero",
    "swallower",
    "doubling",
    "skipping",
    "seed-drift",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="5m", help="attacks on each, or a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these sick trainers alone")
    parser.add_argument("--keep", type=Path, help="a folder for the schedules that are found")
    options = parser.parse_args()
    lines = [HEAD]
    with tempfile.TemporaryDirectory(prefix="chaosspot-explore-") as runs:
        for name in options.only or ordered():
            line = explored(name, options.budget, options.seed, Path(runs), options.keep)
            show("  ".join(line))
            lines.append(line)
        show("\n" + table(lines))
        shrinks = [int(line[6]) for line in lines[1:] if line[2] == FOUND]
        if shrinks:
            wanted = f"at most {MOST_SHRINKS} are wanted"
            show(f"made smaller in a median of {statistics.median(shrinks):g} attacks; {wanted}")
        show(rate(options.seed, Path(runs)))
    return int(any(line[2] not in (FOUND, UNDISTURBED) for line in lines[1:]))


def rate(seed: int, runs: Path) -> str:
    """How many attacks a minute an exploration makes, in one line."""
    came_to = explore("minimal", kinds=("kill",), budget=RATE_FOR, seed=seed, runs=runs).exploration
    per_minute = 60 * came_to.attacks / came_to.took_s
    how = f"{came_to.attacks} in {came_to.took_s:.0f} s, load {os.getloadavg()[0]:.1f}"
    wanted = f"at least {LEAST_RATE} are wanted on 2 idle cores"
    return f"{per_minute:.1f} attacks a minute of minimal with kills ({how}); {wanted}"


def ordered() -> Iterator[str]:
    yield from FIRST
    yield from (name for name in content.names("suites/sick") if name not in FIRST)


def explored(name: str, budget: str, seed: int, runs: Path, keep: Path | None) -> list[str]:
    sick = trainers.load(name).sick
    if sick is None:
        raise SystemExit(f"{name} is not described as sick")
    start_t = time.monotonic()
    try:
        report = explore(name, budget=budget, seed=seed, runs=runs, keep=keep)
    except Exception:  # noqa: BLE001 - one that breaks is a result, not the end of all
        show(traceback.format_exc())
        return [name, sick.finding, "error", *["-"] * (len(HEAD) - 3)]
    return line_of(name, sick, report, time.monotonic() - start_t)


def line_of(name: str, sick: Sick, report: Report, took_s: float) -> list[str]:
    """One line of the table; ``seconds`` are those to the first failure, or all."""
    came_to = report.exploration
    found, alone = came_to.found, came_to.undisturbed
    its_own = (sick.finding, *sick.follows)
    spent = [f"{came_to.attacks}", f"{took_s:.0f}"]
    if alone is not None:  # it needs no fault
        how = UNDISTURBED if alone.oracle in its_own else "other"
        return [name, sick.finding, how, alone.oracle, *spent, "-", "0", "-", "-", ""]
    if found is None:
        return [name, sick.finding, "no", "-", *spent, "-", "-", "-", "-", missing(sick, report)]
    plan = found.schedule
    return [
        name,
        sick.finding,
        FOUND if found.trial.oracle in its_own else "other",
        found.trial.oracle,
        str(found.attacks),
        f"{found.after_s:.0f}",
        str(found.shrinks),
        str(len(plan.fault)),
        str(len(plan.cluster.nodes())),
        f"{found.failed_again}/{found.replays}",
        "",
    ]


def missing(sick: Sick, report: Report) -> str:
    """Which kinds of fault of the schedule that shows the bug never had an effect."""
    _, plan = schedule.load(sick.schedule)
    needed = {fault.kind for fault in plan.fault}
    never = needed - set(report.coverage.kinds)
    if never:
        return f"no {', '.join(sorted(never))} had an effect"
    return f"{', '.join(sorted(needed))} never met the moment"


if __name__ == "__main__":
    sys.exit(main())
