"""What the attacks of an exploration have shown so far, as a value that is folded from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chaosspot.explore.journal import Entry
from chaosspot.explore.trial import Trial
from chaosspot.schedule import Schedule, Trigger
from chaosspot.verdict import Outcome

__all__ = ["Learned", "learned", "worth"]

_USELESS = 2  # attacks without any effect of a kind, after which it is not drawn any more
_VARIED = ("object-store", "network", "misbehave")  # one sort of it says nothing of the others
_MOST_KEPT = 30  # schedules to build on: the newest
_OF_LIVES = ("join", "leave", "drain", "notice", "restore", "exit")  # not of steps or snapshots


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier attacks have shown.

    ``events`` and ``points`` say how many can be waited for, in powers of two: the exact counts
    differ from run to run; ``calm_events`` and ``calm_points`` are those of an undisturbed run of
    ``steps`` steps. ``follows``: moments that came only after a fault, with the schedule that
    brought each about. ``keys``: patterns of what is in the object store. ``useless``: kinds that
    never had an effect. ``corpus``: schedules that met something new, and at its end the one that
    was come back from worst.
    """

    events: Mapping[str, int] = {}
    points: Mapping[str, int] = {}
    calm_events: Mapping[str, int] = {}
    calm_points: Mapping[str, int] = {}
    steps: int = 0
    follows: tuple[tuple[Schedule, Trigger], ...] = ()
    keys: tuple[str, ...] = ()
    useless: tuple[str, ...] = ()
    corpus: tuple[Schedule, ...] = ()


def learned(entries: Iterable[Entry]) -> Learned:
    """What all of these attacks have shown."""
    events: dict[str, int] = {}
    points: dict[str, int] = {}
    calm: Trial | None = None
    follows: dict[Trigger, Schedule] = {}
    keys: dict[str, None] = {}
    without: dict[str, int] = {}
    bitten: set[str] = set()
    met: set[tuple[str, str]] = set()
    corpus: list[Schedule] = []
    worst = (0, 0)
    worst_plan: tuple[Schedule, ...] = ()
    for entry in entries:
        trial = entry.trial
        for seen, found in ((events, trial.events), (points, trial.points)):
            for name, count in found.items():
                seen[name] = max(seen.get(name, 0), _power(count))
        keys |= dict.fromkeys(trial.keys)
        for strike in trial.strikes:
            if strike.effect:
                bitten.add(strike.kind)
            elif strike.step is not None and strike.kind not in _VARIED:  # nothing came of it
                without[strike.kind] = without.get(strike.kind, 0) + 1
        if entry.purpose == "undisturbed" and trial.passed:
            calm = trial
        if entry.purpose != "search" or trial.outcome is not Outcome.PASS:
            continue
        if calm is not None and len(entry.schedule.fault) == 1:
            for moment in _new_moments(calm, trial):
                follows.setdefault(moment, entry.schedule)
        new = {(strike.kind, phase) for strike in trial.strikes for phase in strike.phases} - met
        if worth(entry) > worst:
            worst, worst_plan = worth(entry), (entry.schedule,)
        elif new:
            corpus.append(entry.schedule)
        met |= new
    return Learned(
        events=dict(sorted(events.items())),
        points=dict(sorted(points.items())),
        calm_events={n: _power(c) for n, c in calm.events.items()} if calm else {},
        calm_points={n: _power(c) for n, c in calm.points.items()} if calm else {},
        steps=calm.steps if calm else 0,
        follows=tuple((plan, moment) for moment, plan in follows.items()),
        keys=tuple(sorted(keys)),
        useless=tuple(sorted(k for k, n in without.items() if n >= _USELESS and k not in bitten)),
        corpus=(*corpus[-_MOST_KEPT:], *worst_plan),
    )


def worth(entry: Entry) -> tuple[int, int]:
    """How bad an attack was, in coarse levels: noise is nothing to climb on."""
    trial = entry.trial
    return (int(2 * (trial.recovery_s or 0.0)), trial.rework_steps or 0)


def _new_moments(calm: Trial, trial: Trial) -> Iterable[Trigger]:
    """What an undisturbed run never comes to: points, and events in the lives of nodes."""
    for name in trial.points:
        if name not in calm.points:
            yield Trigger(point=name)
    for name in _OF_LIVES:
        before = calm.events.get(name, 0)
        if trial.events.get(name, 0) > before:
            yield Trigger(event=name, nth=before + 1)


def _power(count: int) -> int:
    """The largest power of two up to ``count``."""
    return 1 << max(0, count.bit_length() - 1)
