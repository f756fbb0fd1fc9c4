"""What oracles look at: one attack's history, its twin's, and what was to hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from chaosspot import history as h
from chaosspot.schedule import FaultKind, Schedule
from chaosspot.trainers import Promises, Trainer

__all__ = ["Evidence", "FaultView"]

R = TypeVar("R", bound=h.Record)


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
        return self.injected.nodes if self.injected else ()

    def seen(self, what: str) -> dict[str, h.FaultEffect]:
        """The effects of one sort, by node."""
        return {r.node: r for r in self.effects if r.what == what}

    @property
    def first_effect_t(self) -> float | None:
        return min((r.t for r in self.effects), default=None)

    @property
    def gone_t(self) -> float | None:
        """When the last of its nodes was gone; None while one is not."""
        gone = self.seen("gone")
        if not self.nodes or set(self.nodes) - set(gone):
            return None
        return max(r.t for r in gone.values())


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
