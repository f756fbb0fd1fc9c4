"""Holds a trainer's processes at armed points until the conductor has acted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import msgspec

__all__ = ["Points"]


class _Waiter:
    """One fault that waits for the ``nth`` hit of a point."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.node = ""
        self.hit = anyio.Event()
        self.done = anyio.Event()


class Points:
    """Serves the control socket that :func:`chaosspot.probe.point` speaks to.

    ``folder`` must be short: a unix socket's path may have 107 bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.armed = folder / "points"
        self.socket = folder / "control"
        self._waiters: dict[str, list[_Waiter]] = defaultdict(list)
        self.armed.mkdir()

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Answer until cancelled."""
        listener = await anyio.create_unix_listener(self.socket)
        async with listener:
            task_status.started()
            await listener.serve(self._answer)

    @asynccontextmanager
    async def hold(self, name: str, nth: int) -> AsyncIterator[str]:
        """Arm a point and wait for its ``nth`` hit; yields the node that reached it.

        That process stays where it is until the block ends.
        """
        waiter = _Waiter(nth)
        self._waiters[name].append(waiter)
        (self.armed / name).touch()
        try:
            await waiter.hit.wait()
            yield waiter.node
        finally:
            waiter.done.set()
            self._disarm(name, waiter)

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                line = await stream.receive(4096)
                request = msgspec.json.decode(line, type=dict)
            except (anyio.EndOfStream, anyio.BrokenResourceError, msgspec.DecodeError):
                return
            for waiter in list(self._waiters.get(str(request.get("point")), ())):
                waiter.left -= 1
                if waiter.left == 0:
                    waiter.node = str(request.get("node", ""))
                    self._disarm(str(request["point"]), waiter)
                    waiter.hit.set()
                    await waiter.done.wait()
            try:
                await stream.send(b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the process was killed while it was held

    def _disarm(self, name: str, waiter: _Waiter) -> None:
        if waiter in self._waiters[name]:
            self._waiters[name].remove(waiter)
        if not self._waiters[name]:
            (self.armed / name).unlink(missing_ok=True)
