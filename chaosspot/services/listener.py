"""One listening address: opened, refused, opened again and closed; and answers cut short.

A thousand of them are cheap: a socket each, and no thread, task or timer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["Bind", "Handler", "Listener", "cut", "for_ever"]

Bind: TypeAlias = Callable[[str, int], socket.socket]
Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_IDLE_S = 30.0  # a connection without a whole request is closed
_BACKLOG = 128
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset


def _worth_telling(record: logging.LogRecord) -> bool:
    """Broken requests are the client's matter, and so is who does not wait for an answer."""
    of_client = (HttpProcessingError, ConnectionResetError)
    return not (record.exc_info and isinstance(record.exc_info[1], of_client))


_log = logging.getLogger(__name__)
_log.addFilter(_worth_telling)


class Listener:
    """Serves ``answer`` on one address; ``resets`` says whether to reset the next connection."""

    def __init__(self, answer: Handler, *, resets: Callable[[], bool]) -> None:
        self.endpoint = ""
        self._resets = resets
        self._loop = asyncio.get_running_loop()
        self._http = web.Server(
            answer,
            access_log=None,
            handler_cancellation=True,  # who leaves is not answered: nothing waits on for nobody
            keepalive_timeout=_IDLE_S,
            lingering_time=1.0,
            logger=_log,
        )
        self._bind: Bind = _bound
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int, *, bind: Bind | None = None) -> None:
        """Listen; port 0 takes any free one. ``bind`` makes the socket where it is to be.

        Raises:
            OSError: the address cannot be bound.
        """
        self._bind = bind or _bound
        self._socket = self._bind(host, port)
        port = self._socket.getsockname()[1]
        self.endpoint = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        await self._listen()

    def refuse(self) -> None:
        """Refuse connections and drop those there are, but keep the address."""
        if self._socket is None or self._server is None:
            return
        host, port = self._socket.getsockname()[:2]
        self._server.close()
        self._server = None
        self._drop()
        try:
            self._socket = self._bind(host, port)  # bound, not listening: nobody else can have it
        except OSError:
            if self._bind is _bound:
                raise
            self._socket = None  # the network that it was in is gone, and so is whoever would ask

    async def reopen(self) -> None:
        """Listen again after :meth:`refuse`."""
        if self._socket is not None and self._server is None:
            await self._listen()

    async def move(self, host: str, port: int, *, bind: Bind) -> None:
        """Listen somewhere else instead; whoever is connected is dropped.

        Raises:
            OSError: the address cannot be bound; then nothing listens.
        """
        refuses = self._server is None
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        self._server = self._socket = None
        self._drop()
        await self.open(host, port, bind=bind)
        if refuses:
            self.refuse()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        self._server = self._socket = None
        self._drop()
        await self._http.shutdown(1.0)

    async def _listen(self) -> None:
        assert self._socket is not None
        self._server = await self._loop.create_server(
            self._protocol, sock=self._socket, backlog=_BACKLOG
        )

    def _protocol(self) -> asyncio.Protocol:
        return _Reset() if self._resets() else self._http()

    def _drop(self) -> None:
        for connection in self._http.connections:
            connection.force_close()


class _Reset(asyncio.Protocol):
    """Resets its connection as soon as there is one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        _reset(transport)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        reason = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from error
    return found


def _reset(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


async def cut(received: web.BaseRequest, head: bytes) -> None:
    """Send ``head``, the beginning of an answer, and reset the connection. Does not return."""
    transport = received.transport
    if transport is not None:
        transport.write(head)
        _reset(transport)
    await for_ever()


async def for_ever() -> None:
    """Ends by being cancelled, when the client leaves or the listener is closed."""
    await asyncio.get_running_loop().create_future()
