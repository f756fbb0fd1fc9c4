"""Holds a trainer's processes at armed points until the conductor has acted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import msgspec

__all__ = ["Held", "Points"]


class Held:
    """The ``nth`` hit of a point, for which one fault waits; ``node`` is whoever makes it."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.node = ""
        self.hit = anyio.Event()
        self.done = anyio.Event()

    def release(self) -> None:
        """Let the process go on."""
        self.done.set()


class Points:
    """Serves the control socket that :func:`chaosspot.probe.point` speaks to.

    ``folder`` must be short: a unix socket's path may have 107 bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.armed = folder / "points"
        self.socket = folder / "control"
        self._waiters: dict[str, list[Held]] = defaultdict(list)
        self.armed.mkdir()

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Answer until cancelled."""
        listener = await anyio.create_unix_listener(self.socket)
        async with listener:
            task_status.started()
            await listener.serve(self._answer)

    @asynccontextmanager
    async def hold(self, name: str, nth: int) -> AsyncIterator[Held]:
        """Arm a point and wait for its ``nth`` hit.

        The process that reached it stays where it is until it is released, or the block ends.
        """
        waiter = Held(nth)
        self._waiters[name].append(waiter)
        (self.armed / name).touch()
        try:
            await waiter.hit.wait()
            yield waiter
        finally:
            waiter.release()
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

    def _disarm(self, name: str, waiter: Held) -> None:
        if waiter in self._waiters[name]:
            self._waiters[name].remove(waiter)
        if not self._waiters[name]:
            (self.armed / name).unlink(missing_ok=True)
