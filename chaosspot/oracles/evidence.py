"""What oracles look at: one attack's history, its twin's, and what was to hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import merge
from typing import Any, TypeVar, overload

from chaosspot import history as h
from chaosspot.oracles.cold import ColdStart, cold_starts
from chaosspot.oracles.comparison import Comparison
from chaosspot.oracles.episodes import Episode, episodes
from chaosspot.oracles.lineage import Lineage, Process, process_of
from chaosspot.oracles.stored import StoreLog
from chaosspot.schedule import (
    FaultKind,
    Grow,
    Hold,
    Misbehave,
    Network,
    ObjectStore,
    Partition,
    Pause,
    Schedule,
)
from chaosspot.trainers import Promises, Trainer

__all__ = ["Evidence", "FaultView"]

R = TypeVar("R", bound=h.Record)
S = TypeVar("S", bound=h.Record)


# What a fault of each kind must have been seen to do to each of its nodes.
_DECISIVE: Mapping[str, tuple[h.Effect, ...]] = {
    "kill": ("gone",),
    "terminate": ("gone",),
    "notice": ("gone", "withdrawn"),
    "kill-child": ("child-gone",),
    "pause": ("paused",),
    "slow": ("slowed",),
    "hold": ("held",),
    "disk-full": ("full",),
    "slow-flash": ("slowed",),
    "grow": ("up",),
    "misbehave": ("misbehaved",),
    "object-store": ("misbehaved",),
    "network": ("impaired",),
    "partition": ("cut-off",),
    "out-of-memory": ("gone",),
    "throttle-cpu": ("throttled",),
    "dns-gone": ("nameless",),
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
        """The nodes it was to hit; for a growth those that came, and those that used the store
        for a fault of that, which is not theirs."""
        if isinstance(self.spec, Grow):
            return tuple(self.seen("up"))
        if self._is_of_store:
            return tuple(self.hit)
        return self.injected.nodes if self.injected else ()

    @property
    def _is_of_store(self) -> bool:
        return isinstance(self.spec, ObjectStore) or (
            isinstance(self.spec, Network) and self.spec.link == "store"
        )

    @property
    def hit(self) -> dict[str, h.FaultEffect]:
        """The effect that counts, by node, as far as it was seen."""
        wanted = _DECISIVE[self.spec.kind]
        return {r.node: r for r in self.effects if r.what in wanted}

    @property
    def disturbed(self) -> tuple[str, ...]:
        """The nodes whose work it may have cost: not those that only heard less, or something
        else, of the cloud or the store."""
        spec = self.spec
        beside = isinstance(spec, Network) and spec.link != "coordinator"
        return () if beside or isinstance(spec, Misbehave | ObjectStore) else self.nodes

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
        cut = isinstance(self.spec, Network) and self.spec.cuts
        return cut or isinstance(self.spec, Pause | Hold | Partition)

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
        more_twins: tuple[tuple[h.Record, ...], ...] = (),
        final: Comparison | None = None,
    ) -> None:
        self.history = history
        self.schedule = schedule
        self.trainer = trainer
        self.twin = twin
        self.twins_agree = twins_agree
        self.twins = (*(() if twin is None else (twin,)), *more_twins)
        self.final = final

    @property
    def promises(self) -> Promises:
        return self.trainer.promises

    @overload
    def of(self, kind: type[R], /) -> Iterator[R]: ...

    @overload
    def of(self, kind: type[R], other: type[S], /) -> Iterator[R | S]: ...

    @overload
    def of(self, *kinds: type[h.Record]) -> Iterator[h.Record]: ...

    def of(self, *kinds: type[h.Record]) -> Iterator[Any]:
        """The records of these kinds, in order."""
        places = [self._places[kind] for kind in kinds if kind in self._places]
        return map(self.history.__getitem__, places[0] if len(places) == 1 else merge(*places))

    @cached_property
    def _places(self) -> dict[type[h.Record], list[int]]:
        """Where in the history the records of each kind are."""
        places: dict[type[h.Record], list[int]] = defaultdict(list)
        for place, record in enumerate(self.history):
            places[type(record)].append(place)
        return places

    @cached_property
    def told(self) -> dict[Process, list[h.Record]]:
        """What each process of the trainer reported, in order."""
        told: dict[Process, list[h.Record]] = defaultdict(list)
        not_told = (h.Malformed, h.Leak)
        for record in self.history:
            kind = type(record)
            if "." not in kind.event and kind not in not_told:
                told[process_of(record)].append(record)
        return told

    def end_of(self, record: h.Record) -> h.NodeGone | h.NodeRestart | None:
        """The end of the node's life that a trainer's record belongs to."""
        ends = self._ends.get(record.node, [])
        return ends[record.incarnation] if record.incarnation < len(ends) else None

    def is_late(self, record: h.Record) -> bool:
        """Whether a trainer's record comes after the end of the node's life it belongs to."""
        if record.node not in self._ends:
            return False
        end = self.end_of(record)
        return end is not None and end.t < record.t

    @cached_property
    def _ends(self) -> dict[str, list[h.NodeGone | h.NodeRestart]]:
        ends: dict[str, list[h.NodeGone | h.NodeRestart]] = defaultdict(list)
        for record in self.of(h.NodeGone, h.NodeRestart):
            ends[record.node].append(record)
        return ends

    @cached_property
    def lineage(self) -> Lineage:
        return Lineage(self.history)

    @cached_property
    def twin_lineage(self) -> Lineage:
        """Of the first twin; empty without one."""
        return Lineage(self.twin or ())

    @cached_property
    def store(self) -> StoreLog:
        """What the object store held; empty where the run had none."""
        return StoreLog(self.of(h.StorePut, h.StoreDelete, h.StoreUpload, h.StoreFound))

    @cached_property
    def cold_starts(self) -> tuple[ColdStart, ...]:
        return cold_starts(self)

    @cached_property
    def episodes(self) -> tuple[Episode, ...]:
        return episodes(self)

    @cached_property
    def commits(self) -> tuple[h.Commit, ...]:
        return tuple(self.of(h.Commit))

    @cached_property
    def begins(self) -> tuple[h.Begin, ...]:
        return tuple(self.of(h.Begin))

    @cached_property
    def faults(self) -> tuple[FaultView, ...]:
        kinds = (h.FaultInjected, h.FaultMissed, h.FaultHealed, h.FaultEffect)
        records = tuple(self.of(*kinds))
        return tuple(
            FaultView(index, spec, records) for index, spec in enumerate(self.schedule.fault)
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
        for record in self._ups_and_downs:
            if record.t > t:
                break
            if isinstance(record, h.NodeUp):
                live.add(record.node)
            else:
                live.discard(record.node)
        return live

    @cached_property
    def _ups_and_downs(self) -> tuple[h.NodeUp | h.NodeGone, ...]:
        return tuple(
            r
            for r in self.of(h.NodeUp, h.NodeGone)
            if isinstance(r, h.NodeGone) or r.role == "worker"
        )
