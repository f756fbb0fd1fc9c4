"""What an exploration exercised, and what it never did: counts before adjectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from chaosspot.explore.ground import Ground
from chaosspot.explore.journal import Entry
from chaosspot.explore.phases import PHASES
from chaosspot.explore.trial import key_of

__all__ = ["Coverage", "coverage"]

_TARGETS = ("any", "count", "nodes", "fraction", "zone", "family", "pool", "coordinator")


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How many schedules were attacked with, how those ended, and what their faults were.

    Each count is of faults that had an effect. ``never``: what could have been drawn and never had
    one.
    """

    schedules: int
    outcomes: Mapping[str, int]
    kinds: Mapping[str, int]
    targets: Mapping[str, int]
    triggers: Mapping[str, int]
    phases: Mapping[str, int]
    never: Mapping[str, tuple[str, ...]]


def coverage(entries: Iterable[Entry], ground: Ground) -> Coverage:
    """What these attacks exercised of the ground."""
    listed = list(entries)
    strikes = [strike for entry in listed for strike in entry.trial.strikes if strike.effect]
    kinds = Counter(strike.kind for strike in strikes)
    targets = Counter(strike.target for strike in strikes)
    triggers = Counter(strike.trigger for strike in strikes)
    met = Counter(phase for strike in strikes for phase in strike.phases)
    points = {name for entry in listed for name in entry.trial.points}
    events = {name for entry in listed for name in entry.trial.events} - {"commit"}
    could = {
        "kinds": ground.kinds,
        "targets": tuple(t for t in _TARGETS if t != "coordinator" or ground.coordinator),
        "triggers": (
            "at_step",
            "at_s",
            *sorted(f"event {name}" for name in events),
            *sorted(f"point {name}" for name in points),
        ),
        "phases": PHASES,
    }
    did = {"kinds": kinds, "targets": targets, "triggers": triggers, "phases": met}
    return Coverage(
        schedules=len({key_of(entry.schedule) for entry in listed}),
        outcomes=dict(Counter(entry.trial.outcome.value for entry in listed)),
        kinds=dict(kinds.most_common()),
        targets=dict(targets.most_common()),
        triggers=dict(triggers.most_common()),
        phases=dict(met.most_common()),
        never={
            what: tuple(name for name in names if name not in did[what])
            for what, names in could.items()
        },
    )
