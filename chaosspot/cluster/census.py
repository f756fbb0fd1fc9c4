"""Who still lives of which node, seen from outside: one look at /proc for all that ask at once."""

from __future__ import annotations

import time

import anyio
import anyio.to_thread

from chaosspot.undo import procfs
from chaosspot.undo.procfs import Process

__all__ = ["Census"]


class Census:
    """Shared by the nodes of a cluster: sixteen that die together cost one scan, not sixteen."""

    def __init__(self, threads: anyio.CapacityLimiter) -> None:
        self._threads = threads
        self._lock = anyio.Lock()
        self._taken_at = -1.0
        self._holders: dict[str, list[Process]] = {}

    async def holders(self, cookie: str) -> list[Process]:
        """Living processes with that cookie at some moment after the call."""
        asked_at = time.monotonic()
        async with self._lock:
            if self._taken_at < asked_at:
                self._taken_at = time.monotonic()
                self._holders = await anyio.to_thread.run_sync(_look, limiter=self._threads)
            return self._holders.get(cookie, [])


def _look() -> dict[str, list[Process]]:
    return procfs.holders(procfs.TREE, procfs.everyone().values())
