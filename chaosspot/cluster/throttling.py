"""A node that gets less of the processors than it wants: a straggler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from chaosspot.cluster.container_life import ContainerLife

__all__ = ["Throttling"]

_PERIOD_US = 100_000
_LEAST_US = 1000


class Throttling:
    """Of the nodes of one cluster. Nodes that are gone are left out."""

    def __init__(self, threads: anyio.CapacityLimiter) -> None:
        self._threads = threads
        self._before: dict[ContainerLife, int] = {}

    async def begin(self, lives: Sequence[ContainerLife], *, cpus: float) -> None:
        """Leave each so many processors.

        Raises:
            OSError: it cannot be made to one that lives.
        """
        for life in lives:
            try:
                self._before[life] = life.cgroup.throttled
                await _limit(life, max(_LEAST_US, round(cpus * _PERIOD_US)))
            except OSError:
                if not life.empty.is_set():
                    raise

    async def seen(self, lives: Sequence[ContainerLife]) -> dict[str, float]:
        """Who wanted more than it could have, by the kernel's count, and when that was seen."""
        found: dict[str, float] = {}
        for life in lives:
            try:
                if life in self._before and life.cgroup.throttled > self._before[life]:
                    found[life.node.name] = time.monotonic()
            except OSError:
                continue
        return found

    async def end(self, lives: Sequence[ContainerLife]) -> None:
        """Give each back what its group says.

        Raises:
            OSError: one that lives does not get it.
        """
        for life in lives:
            if self._before.pop(life, None) is None:
                continue
            usual = life.node.cpus
            try:
                await _limit(
                    life, -1 if usual is None else max(_LEAST_US, round(usual * _PERIOD_US))
                )
            except OSError:
                if not life.empty.is_set():
                    raise


async def _limit(life: ContainerLife, quota_us: int) -> None:
    await life.limit(cpu_period=_PERIOD_US, cpu_quota=quota_us)
