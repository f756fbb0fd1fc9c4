"""Leads connections from an address to another way: bytes both ways, ends and resets as they come.

For clients in a network of their own: the listening socket is theirs, the way on is ours, or the
reverse.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

__all__ = ["Relay"]

_CHUNK_BYTES = 1 << 16
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset

Dial = Callable[[], Awaitable[socket.socket]]


class Relay:
    """Serves the bound socket ``listener``; each connection goes on over what ``dial`` makes."""

    def __init__(self, listener: socket.socket, dial: Dial) -> None:
        self._listener = listener
        self._dial = dial
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        host, port = listener.getsockname()[:2]
        self.address = f"{host}:{port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener)

    async def close(self) -> None:
        """Stop listening, and drop the connections there are."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._lead(reader, writer)
        except asyncio.CancelledError:
            _reset(writer)
        finally:
            self._tasks.discard(task)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = await asyncio.open_connection(sock=await self._dial())
        except OSError:
            _reset(writer)
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, onward[1]))
                both.create_task(_pump(onward[0], writer))
        except* OSError:
            _reset(writer)
            _reset(onward[1])
        finally:
            writer.close()
            onward[1].close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK_BYTES):
        target.write(data)
        await target.drain()
    with contextlib.suppress(OSError):  # the other side is gone already
        target.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
