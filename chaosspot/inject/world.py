"""What an injector may touch."""

from __future__ import annotations

from typing import Protocol

from chaosspot.cluster import Cluster
from chaosspot.history import Effect
from chaosspot.services.metadata import MetadataService

__all__ = ["World"]


class World(Protocol):
    """One live run, seen from a fault."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def metadata(self) -> MetadataService: ...

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
