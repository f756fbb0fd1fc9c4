"""Everything recorded so far, for those who wait for something to happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from chaosspot import history as h
from chaosspot.conductor.own import own

__all__ = ["Feed"]


class Feed:
    """Appends to the history and wakes whoever waits. Single-threaded, one a run."""

    def __init__(self, writer: h.Writer, observer: Callable[[h.Record], None]) -> None:
        self._writer = writer
        self._observer = observer
        self._changed = anyio.Event()
        self.records: list[h.Record] = []
        self.highest_step = 0
        self.committed: set[str] = set()  # nodes that have committed at least once

    def add(self, record: h.Record) -> h.Record:
        numbered = self._writer.append(record)
        self.records.append(numbered)
        if isinstance(numbered, h.Commit):
            self.highest_step = max(self.highest_step, numbered.step)
            self.committed.add(numbered.node)
        self._changed.set()
        self._changed = anyio.Event()
        self._observer(numbered)
        return numbered

    def note(
        self, kind: type[h.Record], /, *, node: str = "", t: float | None = None, **fields: Any
    ) -> h.Record:
        """Record something the harness itself saw; ``t`` is monotonic seconds, now if absent."""
        return self.add(own(kind, node=node, t=t, **fields))

    async def change(self, within_s: float) -> None:
        """Wait for the next record, at most ``within_s`` seconds."""
        changed = self._changed
        with anyio.move_on_after(within_s):
            await changed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds that only a record can make true."""
        while not condition():
            await self._changed.wait()

    async def nth(self, matches: Callable[[h.Record], bool], count: int = 1) -> h.Record:
        """The ``count``-th record, from the start of the run, for which ``matches`` holds."""
        position = 0
        while True:
            for record in self.records[position:]:
                if matches(record):
                    count -= 1
                    if count == 0:
                        return record
            position = len(self.records)
            await self._changed.wait()
