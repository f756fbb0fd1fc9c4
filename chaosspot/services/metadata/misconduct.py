"""The misbehaviours in force in one service, and the listeners that some of them close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from chaosspot import misbehaviour as m
from chaosspot.schedule import draw
from chaosspot.services.metadata.misbehaving import Active, matches_node
from chaosspot.services.metadata.node import Node

__all__ = ["Misconduct"]


class Misconduct:
    """Keeps ``active``, which the nodes look at; ``clock`` is a monotonic one.

    ``always`` belongs to the service: it is no misbehaviour and cannot be stopped.
    """

    def __init__(self, clock: Callable[[], float], *, always: Iterable[m.MisbehaviourKind]) -> None:
        self.active = [Active(number=0, what=what, since_s=0.0) for what in always]
        self._clock = clock
        self._last = 0
        self._closing: dict[int, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    def start(self, what: m.MisbehaviourKind, nodes: Mapping[str, Node]) -> int:
        """Misbehave from now on; returns the number under which to stop it."""
        self.in_force()
        self._last += 1
        self.active.append(Active(number=self._last, what=what, since_s=self._clock()))
        if isinstance(what, m.Closed):
            shut = [
                node
                for name, node in nodes.items()
                if matches_node(what, name) and draw(what.seed, name, 1) < what.rate
            ]
            for node in shut:
                node.listener.refuse()
            stop = asyncio.Event()
            task = asyncio.get_running_loop().create_task(_reopen(shut, stop, what.lasts_s))
            self._closing[self._last] = (stop, task)
        return self._last

    async def stop(self, number: int) -> None:
        """Stop one; closed listeners are open again when this returns.

        Raises:
            ValueError: it is not in force.
        """
        numbers = [entry.number for entry in self.in_force()]
        if number not in numbers:
            known = ", ".join(map(str, numbers)) or "none"
            raise ValueError(f"misbehaviour={number!r}: not in force; those in force: {known}")
        self.active[:] = [entry for entry in self.active if entry.number != number]
        if number in self._closing:
            stop, task = self._closing.pop(number)
            stop.set()
            await task

    def in_force(self) -> tuple[Active, ...]:
        """Those that have been started and have not ended; ended ones are forgotten here."""
        now_s = self._clock()
        over = {entry.number for entry in self.active if entry.over(now_s)}
        self.active[:] = [entry for entry in self.active if entry.number not in over]
        for number in over & set(self._closing):
            if self._closing[number][1].done():
                del self._closing[number]
        return tuple(entry for entry in self.active if entry.number)

    async def end(self) -> None:
        tasks = [task for _, task in self._closing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _reopen(nodes: list[Node], stop: asyncio.Event, after_s: float | None) -> None:
    """Open the listeners again when told to, or after some seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(after_s):
            await stop.wait()
    for node in nodes:
        await node.listener.reopen()
