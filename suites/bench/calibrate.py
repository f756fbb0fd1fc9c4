"""How well the oracles tell the sick from the healthy, by repeated attacks on both.

Every trainer of ``suites/sick`` is attacked by the schedule it names, and by the same schedule the
healthy trainer it derives from, each with the seeds 1 to the number of runs. Of each oracle it is
shown how often it failed where it had to (sensitivity), how often it failed a healthy trainer
(false alarms), and how often it could not tell (unknown). An attack on a sick trainer is right if
the finding it names is the primary one; one on a healthy trainer if it passed. Exits with 1 if any
was not right, and keeps the run directories of those.

    python suites/bench/calibrate.py [--repeat 10] [--jobs 2] [--only NAME ...]
    python suites/bench/calibrate.py --catalogue minimal     # false alarms over all of faults/
    python suites/bench/calibrate.py --cluster containers    # whether another backend agrees
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import msgspec

import chaosspot
from chaosspot import content, schedule, trainers
from chaosspot.conductor import BACKENDS, unsuited
from chaosspot.conductor.backends import Backend
from chaosspot.oracles import ORACLES
from chaosspot.verdict import Outcome

Z_95 = 1.645  # of the normal distribution, one side


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A trainer and a schedule; ``finding`` and ``follows`` are empty for a healthy one."""

    trainer: str
    schedule: str
    finding: str = ""
    follows: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One attack: what each oracle said of it, by oracle. ``error`` if it did not come so far."""

    case: Case
    seed: int
    outcome: Outcome | None = None
    primary: str = ""
    said: dict[str, Outcome] = {}
    folder: str = ""
    error: str = ""

    @property
    def right(self) -> bool:
        if self.case.finding:
            return self.outcome is Outcome.FAIL and self.primary == self.case.finding
        return self.outcome is Outcome.PASS

    @property
    def exact(self) -> bool:
        """Right, and nothing failed beyond what the trainer's description says follows."""
        failed = {oracle for oracle, said in self.said.items() if said is Outcome.FAIL}
        return self.right and failed == ({self.case.finding, *self.case.follows} - {""})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=10, help="attacks on each trainer")
    parser.add_argument("--jobs", type=int, default=2, help="attacks at a time")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", metavar="NAME", help="these sick trainers alone")
    which.add_argument(
        "--catalogue",
        metavar="TRAINER",
        help="a healthy trainer, by every schedule of the catalogue that it is not limited by",
    )
    parser.add_argument("--cluster", choices=BACKENDS, default="processes", help="the backend")
    options = parser.parse_args()
    if options.catalogue:
        listed = catalogue(options.catalogue, options.cluster)
    else:
        listed = cases(options.only or content.names("suites/sick"))
    folder = Path(tempfile.mkdtemp(prefix="chaosspot-calibrate-"))
    start_t, load = time.monotonic(), os.getloadavg()
    runs = []
    for run in attacks(
        listed,
        runs=options.repeat,
        jobs=options.jobs,
        folder=folder,
        cluster=options.cluster,
    ):
        runs.append(run)
        if not run.right:
            show(f"{run.case.trainer}, seed {run.seed}: {why_wrong(run)}")
    show(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {len(runs)} attacks on {options.cluster} in "
        f"{time.monotonic() - start_t:.0f} s, {options.jobs} at a time, on {os.cpu_count()} CPUs; "
        f"load {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after"
    )
    show("\n" + table(by_trainer(listed, runs)))
    show("\n" + table(by_oracle(runs)))
    if all(run.right for run in runs):
        shutil.rmtree(folder)
        return 0
    show(f"\n{sum(not run.right for run in runs)} attacks were not right; see {folder}")
    return 1


def cases(sick: Iterable[str]) -> list[Case]:
    """The sick trainers, and after them the healthy ones with the same schedules, each once."""
    listed: list[Case] = []
    healthy: dict[Case, None] = {}
    for name in sick:
        about = trainers.load(name).sick
        if about is None:
            raise SystemExit(f"{name} is not described as sick")
        listed.append(
            Case(
                trainer=name,
                schedule=about.schedule,
                finding=about.finding,
                follows=about.follows,
            )
        )
        healthy[Case(trainer=about.healthy, schedule=about.schedule)] = None
    return [*listed, *healthy]


def catalogue(trainer: str, cluster: str = "processes") -> list[Case]:
    """The schedules that can be made to the trainer there and that it is not limited by."""
    known = trainers.load(trainer)
    backend = Backend(name=cluster)
    limits = {limit.schedule for limit in known.limit}
    plans = {name: schedule.load(name)[1] for name in content.names("faults")}
    listed = []
    for name, plan in plans.items():
        if name in limits or unsuited(plan, known):
            continue
        if (lacking := backend.unsupported(plan, Path(tempfile.gettempdir()))) is not None:
            show(f"{name} is left out: {lacking}")
            continue
        listed.append(Case(trainer=trainer, schedule=name))
    return listed


def attacks(
    listed: Sequence[Case], *, runs: int, jobs: int, folder: Path, cluster: str
) -> Iterator[Run]:
    """Attack each ``runs`` times, ``jobs`` at a time; yields them as they end."""
    # Interleaved, so that a busy minute of the machine is not one trainer's alone.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        todo = [
            pool.submit(attack, case, seed, folder, cluster)
            for seed in range(1, runs + 1)
            for case in listed
        ]
        for done in as_completed(todo):
            yield done.result()


def attack(case: Case, seed: int, folder: Path, cluster: str) -> Run:
    # A folder of its own for each: names of runs have whole seconds.
    place = folder / f"{Path(case.trainer).stem}-{Path(case.schedule).name}-{seed}"
    try:
        verdict = chaosspot.attack(
            case.schedule, trainer=case.trainer, seed=seed, runs=place, cluster=cluster
        )
    except Exception:  # noqa: BLE001 - one attack that breaks is a result, not the end of all
        return Run(case=case, seed=seed, error=traceback.format_exc(), folder=str(place))
    said: dict[str, Outcome] = {}
    for finding in verdict.findings:
        before = said.get(finding.oracle, Outcome.PASS)
        said[finding.oracle] = max(before, finding.outcome, key=lambda outcome: outcome.weight)
    run = Run(
        case=case,
        seed=seed,
        outcome=verdict.outcome,
        primary=verdict.primary.oracle if verdict.primary else "",
        said=said,
        folder=verdict.run,
    )
    if run.right:
        shutil.rmtree(place)
    return run


def why_wrong(run: Run) -> str:
    if run.error:
        return run.error
    wanted = f"fail by {run.case.finding}" if run.case.finding else "pass"
    got = f"{run.outcome}{f' by {run.primary}' if run.primary else ''}"
    return f"{got} instead of {wanted}; {run.folder}"


def by_trainer(listed: Iterable[Case], runs: Sequence[Run]) -> list[list[str]]:
    """One line a case. ``exact``: nothing failed beyond what was to follow."""
    lines = [["trainer", "schedule", "must", "right", "exact"]]
    for case in listed:
        mine = [run for run in runs if run.case == case]
        right, exact = sum(run.right for run in mine), sum(run.exact for run in mine)
        must = f"fail by {case.finding}" if case.finding else "pass"
        whole = str(len(mine))
        schedule = Path(case.schedule).name
        lines.append([case.trainer, schedule, must, f"{right}/{whole}", f"{exact}/{whole}"])
    return lines


def by_oracle(runs: Sequence[Run]) -> list[list[str]]:
    """One line an oracle; the bounds are 95 % bounds of the rate, for so many runs."""
    lines = [["oracle", "sensitivity", "at least", "false alarms", "at most", "unknown"]]
    for oracle in ORACLES:
        due = [run for run in runs if oracle in (run.case.finding, *run.case.follows)]
        well = [run for run in runs if not run.case.finding and oracle in run.said]
        caught = sum(run.said.get(oracle) is Outcome.FAIL for run in due)
        said = Counter(run.said[oracle] for run in well)
        alarms = said[Outcome.FAIL]
        unknown = sum(run.said.get(oracle) is Outcome.UNKNOWN for run in runs)
        lines.append(
            [
                oracle,
                f"{caught}/{len(due)}" if due else "-",
                f"{lowest(caught, len(due)):.0%}" if due else "-",
                f"{alarms}/{len(well)}" if well else "-",
                f"{1 - lowest(len(well) - alarms, len(well)):.0%}" if well else "-",
                f"{unknown}/{sum(oracle in run.said for run in runs)}",
            ]
        )
    return lines


def lowest(hits: int, tries: int) -> float:
    """Lower 95 % bound of a rate (Wilson's)."""
    rate, spread = hits / tries, Z_95**2 / tries
    middle = rate + spread / 2
    width = Z_95 * math.sqrt(rate * (1 - rate) / tries + spread / tries / 4)
    return max(0.0, (middle - width) / (1 + spread))


def table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
