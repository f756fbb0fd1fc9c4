"""What an injector may touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chaosspot.cluster import Cluster, Isolated
from chaosspot.history import Effect
from chaosspot.schedule import Link, Toxic
from chaosspot.services.metadata import MetadataService
from chaosspot.store_misbehaviour import StoreMisbehaviourKind

__all__ = ["Links", "World"]


class Links(Protocol):
    """The links of the nodes that the run's faults may impair."""

    async def impair(self, link: Link, names: Sequence[str] | None, toxics: Sequence[Toxic]) -> int:
        """Put toxics on the links of these nodes, or of all and of those that come; a number."""

    async def struck(self, number: int, *, cuts: bool) -> list[str]:
        """The nodes on whose connections a toxic of that number has had something to do.

        With ``cuts``, whoever has a connection: that nothing comes over it is what is done to it.
        """

    async def mend(self, number: int) -> None:
        """Take those toxics away."""


class World(Protocol):
    """One live run, seen from a fault."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def isolated(self) -> Isolated:
        """The same, for faults that only nodes with a network of their own can suffer."""

    @property
    def metadata(self) -> MetadataService: ...

    @property
    def links(self) -> Links: ...

    def misbehave_store(self, how: StoreMisbehaviourKind) -> int:
        """Make the object store misbehave, and record whom that hits; a number."""

    def behave_store(self, number: int) -> None:
        """Stop that, if it has not stopped by itself."""

    def in_force(self) -> None:
        """The fault lasts from now on: whoever is held at its point may meet it. One that is over
        at once, or holds itself, does without."""

    def effect(
        self,
        node: str,
        what: Effect,
        *,
        t: float | None = None,
        deadline_wall_s: float | None = None,
    ) -> None:
        """Record what the fault was seen to do; ``t`` is monotonic seconds, now if absent."""

    async def grow(self, count: int) -> list[str]:
        """Start more nodes like those of the first group; returns their names."""
