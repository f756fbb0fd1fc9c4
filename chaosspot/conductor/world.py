"""What one fault may touch of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from chaosspot import history as h
from chaosspot.cluster import Isolated
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.fleet import Fleet
from chaosspot.conductor.storage import Storage
from chaosspot.store_misbehaviour import StoreMisbehaviourKind

__all__ = ["FaultWorld"]


class FaultWorld:
    """What one fault may touch, and the record of what it did (an ``inject.World``)."""

    def __init__(
        self,
        fleet: Fleet,
        storage: Storage | None,
        feed: Feed,
        fault: int,
        in_force: Callable[[], None],
    ) -> None:
        self.in_force = in_force
        self.cluster = fleet.cluster
        self.metadata = fleet.metadata
        self.links = fleet.links
        self.grow = fleet.grow
        self._storage = storage
        self._feed = feed
        self._fault = fault

    @property
    def isolated(self) -> Isolated:
        return cast("Isolated", self.cluster)  # where it is not, such faults are refused

    def misbehave_store(self, how: StoreMisbehaviourKind) -> int:
        return self._store.misbehave(how, self._fault)

    def behave_store(self, number: int) -> None:
        self._store.behave(number)

    @property
    def _store(self) -> Storage:
        assert self._storage is not None, "a schedule with such a fault has an object store"
        return self._storage

    def effect(
        self,
        node: str,
        what: h.Effect,
        *,
        t: float | None = None,
        deadline_wall_s: float | None = None,
    ) -> None:
        self._feed.note(
            h.FaultEffect,
            node=node,
            t=t,
            fault=self._fault,
            what=what,
            deadline_wall_s=deadline_wall_s,
        )
