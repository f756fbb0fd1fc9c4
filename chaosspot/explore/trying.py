"""Makes the attacks of an exploration on real processes, and reads off what they show."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from chaosspot import history as h
from chaosspot.conductor import attack
from chaosspot.explore.journal import Purpose
from chaosspot.explore.phases import phases
from chaosspot.explore.trial import Strike, Trial, target_word, trigger_word
from chaosspot.schedule import Fault, Schedule
from chaosspot.trainers import Trainer
from chaosspot.verdict import Outcome, Verdict

__all__ = ["Trying", "trial_of"]

_STEPS = 40  # of an undisturbed run: as many as show its snapshots
_ROOM_STEPS = 60  # beyond what a schedule needs, so that all can be decided
_ROOM_S = 3.0
_TOLD = frozenset(name for name in h.EVENTS if "." not in name) - {"begin", "point", "malformed"}


class Trying:
    """Attacks one trainer; run directories of what passed are removed.

    The trainer is told to report the points that it passes, so that they can be aimed at; it is
    replayed as it is.
    """

    def __init__(self, trainer: Trainer, runs: Path) -> None:
        self._trainer = trainer
        self._runs = runs
        told = {**trainer.environment, "CHAOSSPOT_TELL": "1"}
        self._telling = replace(trainer, environment=told)
        self._steps_per_s = 0.0

    def __call__(self, plan: Schedule, purpose: Purpose) -> Trial:
        start_t = time.monotonic()
        try:
            verdict = attack(
                plan,
                name=purpose,
                trainer=self._trainer if purpose == "replay" else self._telling,
                steps=None if self._trainer.final else self._enough(plan),
                runs=self._runs,
            )
        except OSError as error:  # one attack that breaks says nothing of the trainer
            took_s = round(time.monotonic() - start_t, 3)
            message = f"the attack broke: {error}"
            return Trial(outcome=Outcome.UNKNOWN, oracle="attack", message=message, took_s=took_s)
        records = h.read(Path(verdict.run) / "history.jsonl")
        trial = trial_of(plan, verdict, records, took_s=round(time.monotonic() - start_t, 3))
        if purpose == "undisturbed":
            self._steps_per_s = trial.steps_per_s
        if trial.passed:
            shutil.rmtree(verdict.run, ignore_errors=True)
            trial = replace(trial, run="")
        return trial

    def learn(self, undisturbed: Trial) -> None:
        """How fast the trainer is, from an attack that another process made."""
        self._steps_per_s = undisturbed.steps_per_s

    def _enough(self, plan: Schedule) -> int:
        """The step at which a run ends whose triggers may never come."""
        if not plan.fault:
            return _STEPS
        wait_s = sum(map(_lasts_s, plan.fault))
        step = max((fault.on.at_step or fault.on.nth for fault in plan.fault), default=0)
        return step + _ROOM_STEPS + round(self._steps_per_s * (wait_s + _ROOM_S))


def _lasts_s(fault: Fault) -> float:
    """Seconds that a fault takes at most, waiting for its time included."""
    on = fault.on
    names = ("duration_s", "lead_s", "grace_s", "shutdown_s", "replace_after_s", "start_delay_s")
    took_s = sum(getattr(fault, name, None) or 0.0 for name in names)
    return float(took_s + (on.at_s or 0.0) + on.delay_s + on.jitter_s)


def trial_of(
    plan: Schedule, verdict: Verdict, records: Iterable[h.Record], *, took_s: float
) -> Trial:
    """What a verdict and its history say for an exploration; pure."""
    listed = list(records)
    primary = verdict.primary
    rework = verdict.measured.get("rework_steps")
    return Trial(
        outcome=verdict.outcome,
        oracle=primary.oracle if primary else "",
        message=primary.message if primary else "",
        recovery_s=verdict.measured.get("recovery_s"),
        rework_steps=rework,
        strikes=_strikes(plan, listed),
        events=_counted(_name(r) for r in listed if r.event in _TOLD),
        points=_counted(_point(r) for r in listed),
        keys=_keys(listed),
        steps=max((r.step for r in listed if isinstance(r, h.Commit)), default=0),
        steps_per_s=_rate(listed),
        took_s=took_s,
        run=verdict.run,
    )


def _strikes(plan: Schedule, records: list[h.Record]) -> tuple[Strike, ...]:
    met = phases(records)
    injected = {r.fault: r for r in records if isinstance(r, h.FaultInjected)}
    bitten = {r.fault for r in records if isinstance(r, h.FaultEffect)}
    return tuple(
        Strike(
            kind=fault.kind,
            target=target_word(fault),
            trigger=trigger_word(fault.on),
            effect=index in bitten,
            step=injected[index].step if index in injected else None,
            phases=met.get(index, ()),
        )
        for index, fault in enumerate(plan.fault)
    )


def _counted(names: Iterable[str]) -> Mapping[str, int]:
    return dict(sorted((n, count) for n, count in Counter(names).items() if n))


def _name(record: h.Record) -> str:
    stage = getattr(record, "stage", None)
    return f"{record.event}.{stage}" if stage else record.event


def _point(record: h.Record) -> str:
    if isinstance(record, h.Point):
        return record.name
    passed = isinstance(record, h.Other) and record.name == "passed"
    return str(record.extra.get("name", "")) if passed else ""


def _keys(records: list[h.Record]) -> tuple[str, ...]:
    """Patterns of the names of objects, whose numbers may be any."""
    names = {record.key.rpartition("/")[2] for record in records if isinstance(record, h.StorePut)}
    return tuple(sorted({f"*/{re.sub('[0-9]+', '*', name)}" for name in names}))


def _rate(records: list[h.Record]) -> float:
    """Steps a second, between the first commit and the last of an attack."""
    commits = [r for r in records if isinstance(r, h.Commit)]
    if len(commits) < 2 or commits[-1].t <= commits[0].t:
        return 0.0
    return round((commits[-1].step - commits[0].step) / (commits[-1].t - commits[0].t), 2)
