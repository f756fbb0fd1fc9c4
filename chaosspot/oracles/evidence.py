"""What oracles look at: one attack's history, its twin's, and what was to hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeVar

from chaosspot import history as h
from chaosspot.schedule import FaultKind, Grow, Hold, Pause, Schedule
from chaosspot.trainers import Promises, Trainer

__all__ = ["Evidence", "FaultView"]

R = TypeVar("R", bound=h.Record)


# What a fault of each kind must have been seen to do to each of its nodes.
_DECISIVE: Mapping[str, tuple[h.Effect, ...]] = {
    "kill": ("gone",),
    "terminate": ("gone",),
    "notice": ("gone", "withdrawn"),
    "kill-child": ("child-gone",),
    "pause": ("paused",),
    "hold": ("held",),
    "disk-full": ("full",),
    "grow": ("up",),
}


class FaultView:
    """What the harness saw of one fault."""

    def __init__(self, index: int, spec: FaultKind, history: tuple[h.Record, ...]) -> None:
        self.index = index
        self.spec = spec
        mine = [r for r in history if getattr(r, "fault", None) == index]
        self.injected = next((r for r in mine if isinstance(r, h.FaultInjected)), None)
        self.missed = next((r for r in mine if isinstance(r, h.FaultMissed)), None)
        self.healed = next((r for r in mine if isinstance(r, h.FaultHealed)), None)
        self.effects = tuple(r for r in mine if isinstance(r, h.FaultEffect))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes it was to hit; for a growth, those that came."""
        if isinstance(self.spec, Grow):
            return tuple(self.seen("up"))
        return self.injected.nodes if self.injected else ()

    @property
    def hit(self) -> dict[str, h.FaultEffect]:
        """The effect that counts, by node, as far as it was seen."""
        wanted = _DECISIVE[self.spec.kind]
        return {r.node: r for r in self.effects if r.what in wanted}

    @property
    def complete(self) -> bool:
        """Whether it hit all that it was to hit."""
        if isinstance(self.spec, Grow):
            return len(self.nodes) == self.spec.count
        return bool(self.nodes) and not set(self.nodes) - set(self.hit)

    @property
    def effect_t(self) -> float | None:
        """When the last of its nodes was hit; None while one is not."""
        return max(r.t for r in self.hit.values()) if self.complete else None

    @property
    def impairs(self) -> bool:
        """Whether its nodes live on but cannot work until it is healed."""
        return isinstance(self.spec, Pause | Hold)

    def seen(self, what: h.Effect) -> dict[str, h.FaultEffect]:
        """The effects of one sort, by node."""
        return {r.node: r for r in self.effects if r.what == what}

    @property
    def first_effect_t(self) -> float | None:
        return min((r.t for r in self.effects), default=None)


class Evidence:
    """A frozen view; everything derived from it is computed once."""

    def __init__(
        self,
        *,
        history: tuple[h.Record, ...],
        schedule: Schedule,
        trainer: Trainer,
        twin: tuple[h.Record, ...] | None = None,
        twins_agree: bool = True,
    ) -> None:
        self.history = history
        self.schedule = schedule
        self.trainer = trainer
        self.twin = twin
        self.twins_agree = twins_agree

    @property
    def promises(self) -> Promises:
        return self.trainer.promises

    def of(self, kind: type[R]) -> Iterator[R]:
        """The records of one kind, in order."""
        return (record for record in self.history if isinstance(record, kind))

    @cached_property
    def commits(self) -> tuple[h.Commit, ...]:
        return tuple(self.of(h.Commit))

    @cached_property
    def begins(self) -> tuple[h.Begin, ...]:
        return tuple(self.of(h.Begin))

    @cached_property
    def faults(self) -> tuple[FaultView, ...]:
        return tuple(
            FaultView(index, spec, self.history) for index, spec in enumerate(self.schedule.fault)
        )

    @cached_property
    def stop(self) -> h.RunStop | None:
        return next(self.of(h.RunStop), None)

    @cached_property
    def end_t(self) -> float:
        """When the run was stopped, or its last record."""
        return self.stop.t if self.stop else (self.history[-1].t if self.history else 0.0)

    @cached_property
    def workers(self) -> dict[str, h.NodeUp]:
        """Every worker node that was ever up, by name; its first life."""
        ups: dict[str, h.NodeUp] = {}
        for up in self.of(h.NodeUp):
            if up.role == "worker":
                ups.setdefault(up.node, up)
        return ups

    def able_workers(self, t: float) -> set[str]:
        """Workers that lived at time ``t`` and were not paused or held then."""
        impaired = {
            node
            for view in self.faults
            if view.impairs
            for node, effect in view.hit.items()
            if effect.t <= t and (view.healed is None or view.healed.t > t)
        }
        return self.live_workers(t) - impaired

    def live_workers(self, t: float) -> set[str]:
        """Workers whose tree lived at time ``t`` (after what happened at ``t``)."""
        live: set[str] = set()
        for record in self.history:
            if record.t > t:
                break
            if isinstance(record, h.NodeUp) and record.role == "worker":
                live.add(record.node)
            elif isinstance(record, h.NodeGone):
                live.discard(record.node)
        return live


def process_of(record: h.Record) -> tuple[str, int, int, int]:
    """Which process wrote a record."""
    return (record.node, record.incarnation, record.rank, record.pid)
