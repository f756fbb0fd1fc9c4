"""Figures of several runs: median, worst, an interval, and whether they got worse."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from chaosspot.conductor.rundir import RunError, read_verdict
from chaosspot.verdict import Outcome, Verdict
from chaosspot.words import count

__all__ = ["Change", "Summary", "compare", "load_runs", "summarise"]

# figure -> whether more is worse
FIGURES = {"recovery_s": True, "catch_up_s": True, "rework_steps": True, "goodput": False}
_LEAST_RUNS = 3  # fewer tell nothing about a median
_RESAMPLES = 2000


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of several runs; ``low`` and ``high`` bound the median (95 %, bootstrap)."""

    figure: str
    runs: int
    median: float
    worst: float
    low: float
    high: float


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, or ``outcome``, of one schedule before and after.

    For ``outcome`` the numbers are shares of runs that passed. ``worse`` is the regression.
    """

    schedule: str
    figure: str
    base: float
    new: float
    worse: bool
    reason: str


def summarise(verdicts: Sequence[Verdict]) -> list[Summary]:
    """Every figure that at least one run measured."""
    return [
        Summary(
            figure=figure,
            runs=len(values),
            median=statistics.median(values),
            worst=max(values) if more_is_worse else min(values),
            low=low,
            high=high,
        )
        for figure, more_is_worse in FIGURES.items()
        if (values := _values(verdicts, figure))
        for low, high in [_interval(values)]
    ]


def compare(
    base: Sequence[Verdict], new: Sequence[Verdict], *, tolerance: float = 0.1
) -> list[Change]:
    """What changed between two sets of runs, schedule by schedule.

    A figure is worse when the median of the new runs is worse than the base's by more than
    ``tolerance`` (a share of it), and even the better end of its interval is worse than the base's
    median. An outcome is worse when a smaller share of runs passed.

    Raises:
        ValueError: the two sets have no schedule in common, or the tolerance is negative.
    """
    if tolerance < 0:
        raise ValueError(f"tolerance = {tolerance}: at least 0")
    names = {v.schedule for v in base} & {v.schedule for v in new}
    if not names:
        before, after = ({v.schedule for v in side} for side in (base, new))
        raise ValueError(f"no schedule in common: {sorted(before)} and {sorted(after)}")
    changes = []
    for name in sorted(names):
        left = [v for v in base if v.schedule == name]
        right = [v for v in new if v.schedule == name]
        changes.append(_outcomes(name, left, right))
        changes += [
            change
            for figure in FIGURES
            if (change := _figure(name, figure, left, right, tolerance)) is not None
        ]
    return changes


def load_runs(paths: Iterable[Path]) -> list[Verdict]:
    """The verdicts of run directories, or of all runs in directories of runs.

    Raises:
        RunError: a path holds no verdict.
    """
    verdicts = []
    for path in paths:
        runs = [path]
        if not (path / "history.jsonl").exists():  # a run that was interrupted has no verdict
            runs = sorted(v.parent for v in path.glob("2*/verdict.json"))
        if not runs:
            raise RunError(f"{str(path)!r} holds no runs")
        verdicts += [read_verdict(run) for run in runs]
    return verdicts


def _outcomes(name: str, base: Sequence[Verdict], new: Sequence[Verdict]) -> Change:
    before, after = _passed(base), _passed(new)
    runs = count(len(new), "run")
    return Change(
        schedule=name,
        figure="outcome",
        base=before,
        new=after,
        worse=after < before,
        reason=f"{after:.0%} of {runs} passed, {before:.0%} of {len(base)} before",
    )


def _figure(
    name: str, figure: str, base: Sequence[Verdict], new: Sequence[Verdict], tolerance: float
) -> Change | None:
    before, after = _values(base, figure), _values(new, figure)
    if not before or not after:
        return None
    more_is_worse = FIGURES[figure]
    old, now = statistics.median(before), statistics.median(after)
    low, high = _interval(after)
    if more_is_worse:
        worse = now > old * (1 + tolerance) and low > old
    else:
        worse = now < old * (1 - tolerance) and high < old
    reason = f"median {now:.3g} [{low:.3g}, {high:.3g}], {old:.3g} before"
    if min(len(before), len(after)) < _LEAST_RUNS:
        worse, reason = False, f"{reason}; too few runs to tell"
    return Change(schedule=name, figure=figure, base=old, new=now, worse=worse, reason=reason)


def _values(verdicts: Iterable[Verdict], figure: str) -> list[float]:
    return [float(v.measured[figure]) for v in verdicts if v.measured.get(figure) is not None]


def _passed(verdicts: Sequence[Verdict]) -> float:
    return sum(v.outcome is Outcome.PASS for v in verdicts) / len(verdicts)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap of the median; the same values give the same interval."""
    source = random.Random(len(values))
    medians = sorted(
        statistics.median(source.choices(values, k=len(values))) for _ in range(_RESAMPLES)
    )
    return medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES) - 1]
