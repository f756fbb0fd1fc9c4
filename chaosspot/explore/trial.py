"""What one attack of an exploration came to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from chaosspot import toml
from chaosspot.schedule import Fault, Schedule, Trigger
from chaosspot.verdict import Outcome

__all__ = ["Strike", "Trial", "key_of", "target_word", "trigger_word"]


class Strike(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a fault met: ``phases`` are what the trainer was doing (:mod:`.phases`).

    ``effect``: the harness saw it bite. ``step``: the highest that was committed; None if the fault
    never acted.
    """

    kind: str
    target: str
    trigger: str
    effect: bool = False
    step: int | None = None
    phases: tuple[str, ...] = ()


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attack: its outcome, what decided it, and what is worth aiming at next.

    ``events`` and ``points``: how often each was seen. ``keys``: patterns of the objects in the
    store. ``steps``: the highest that was committed. ``steps_per_s`` is how fast the trainer
    commits. ``run`` is the run directory, empty where it was not kept.
    """

    outcome: Outcome
    oracle: str = ""
    message: str = ""
    recovery_s: float | None = None
    rework_steps: int | None = None
    strikes: tuple[Strike, ...] = ()
    events: Mapping[str, int] = {}
    points: Mapping[str, int] = {}
    keys: tuple[str, ...] = ()
    steps: int = 0
    steps_per_s: float = 0.0
    took_s: float = 0.0
    run: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome is Outcome.FAIL

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS


def key_of(schedule: Schedule) -> str:
    """Names a schedule by what it does: two with one key are the same attack."""
    bare = msgspec.structs.replace(schedule, title="", source="", imitates="", does_not_prove="")
    return hashlib.blake2b(toml.dumps(bare).encode(), digest_size=8).hexdigest()


def target_word(fault: Fault) -> str:
    """What a target chooses by, in a word."""
    target = fault.target
    if target is None:
        return "any"
    if target.role != "worker":
        return target.role
    keys = ("nodes", "zone", "family", "pool", "fraction", "count")
    return next((key for key in keys if getattr(target, key) is not None), "everyone")


def trigger_word(on: Trigger) -> str:
    """What a trigger waits for, without its numbers."""
    if on.event is not None:
        return f"event {on.event}"
    if on.point is not None:
        return f"point {on.point}"
    return "at_step" if on.at_step is not None else "at_s"
