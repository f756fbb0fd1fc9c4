"""One connection: a client, the server that it is led to, and a link each way."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from chaosspot.services.proxy.chain import Chain
from chaosspot.services.proxy.link import End, Link
from chaosspot.services.proxy.names import addresses
from chaosspot.services.proxy.poller import Poller
from chaosspot.services.proxy.values import Direction, Toxic, upstream_of

__all__ = ["DIAL_S", "Connection", "dial", "resetting"]

DIAL_S = 10.0
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset


class Connection:
    """A connection under a number of its own.

    Args:
        chain_of: makes the chain of one direction.
        closed: is told when both sockets are closed.
    """

    def __init__(
        self,
        number: int,
        client: socket.socket,
        server: socket.socket,
        *,
        chain_of: Callable[[Direction], Chain],
        poller: Poller,
        closed: Callable[[Connection], object],
    ) -> None:
        self.number = number
        self._closed = closed
        self._over = False
        self._open = {client, server}
        for sock in self._open:
            with suppress(OSError):  # reset already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        up, down = chain_of("upstream"), chain_of("downstream")
        self.links: dict[Direction, Link] = {
            "upstream": Link(up, client, server, poller=poller, ended=self._ended),
            "downstream": Link(down, server, client, poller=poller, ended=self._ended),
        }
        self._lingering = {*up.lingering(), *down.lingering()}

    def start(self) -> None:
        for link in self.links.values():
            link.work()

    def add(self, toxic: Toxic) -> None:
        link = self.links[toxic.direction]
        link.chain.add(toxic)
        link.work()

    def update(self, toxic: Toxic) -> None:
        link = self.links[toxic.direction]
        link.chain.update(toxic)
        if not link.chain.runs(toxic.name) and not link.chain.ended:
            self._lingering.discard(toxic.name)
        link.work()

    def remove(self, toxic: Toxic) -> None:
        link = self.links[toxic.direction]
        link.chain.remove(toxic.name)
        if not link.chain.ended:
            self._lingering.discard(toxic.name)
        link.work()

    def drop(self) -> None:
        """Close both sides at once, whatever is on its way."""
        for link in self.links.values():
            link.stop()
        self._close(*self._open)

    # --- inside -------------------------------------------------------------------------------

    def _ended(self, link: Link, how: End) -> None:
        up, down = self.links["upstream"], self.links["downstream"]
        other = down if link is up else up
        if how == "reset":
            other.stop()
            for sock in self._open:
                resetting(sock)
            self._close(*self._open)
        elif other.over:
            self._close(*self._open)
        elif how == "half":
            with suppress(OSError):
                link.target.shutdown(socket.SHUT_WR)
        else:
            other.source_gone()
            self._close(link.target)

    def _close(self, *sockets: socket.socket) -> None:
        for sock in sockets:
            if sock in self._open:
                self._open.discard(sock)
                if self._lingering:
                    resetting(sock)
                sock.close()
        if not self._open and not self._over:
            self._over = True
            self._closed(self)


def resetting(sock: socket.socket) -> None:
    """Make the socket's closing a reset."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


async def dial(upstream: str) -> socket.socket:
    """A connection to ``host:port``.

    Raises:
        OSError, TimeoutError: there is none to be had, or none within DIAL_S.
        ValueError: it is no address.
    """
    loop = asyncio.get_running_loop()
    host, port = upstream_of(upstream)
    failed: OSError = OSError(f"lookup {host}: no such host")
    async with asyncio.timeout(DIAL_S):
        for family, where in await addresses(host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                await loop.sock_connect(sock, where)
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
    raise failed
