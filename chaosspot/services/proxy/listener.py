"""One address that connections come to: opened, shut and opened again, and its port kept."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from chaosspot.services.proxy.names import addresses

__all__ = ["Address", "Listener", "resolve", "shown"]

Address = tuple[socket.AddressFamily, str, int]

_BACKLOG = 4096  # the kernel makes less of it
_AT_ONCE = 16  # accepted before others get their turn
_PAUSE_S = 0.1  # until the next try when no file can be opened
_LOOKUP_S = 0.9


async def resolve(host: str, port: int) -> Address:
    """An address to listen on; IPv4 is preferred, and no host is loopback.

    Raises:
        OSError: with the words of Go's library.
    """
    try:
        async with asyncio.timeout(_LOOKUP_S):
            (family, where), *_ = await addresses(host or "127.0.0.1", port)
    except TimeoutError:
        raise OSError(f"lookup {host}: i/o timeout") from None
    return family, str(where[0]), int(where[1])


class Listener:
    """Accepts connections at an address and hands them to ``accepted``, on the running loop.

    Raises:
        OSError: the address cannot be bound, or somebody else listens there; with the words of
            Go's library.
    """

    def __init__(self, address: Address, accepted: Callable[[socket.socket], object]) -> None:
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self.listening = False
        self._socket = _bound(address)
        host, port = self._socket.getsockname()[:2]
        self.address: Address = (address[0], host, port)

    def open(self) -> None:
        """Accept connections from now on.

        Raises:
            OSError: somebody else listens there.
        """
        if self.listening:
            return
        if self._socket.fileno() < 0:
            self._socket = _bound(self.address)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # see _bound
        try:
            self._socket.listen(_BACKLOG)
        except OSError as error:
            raise _words(error, self.address) from error
        self._loop.add_reader(self._socket, self._readable)
        self.listening = True

    def shut(self) -> None:
        """Refuse connections, but keep the port: nobody else can have it."""
        if self.listening:
            self.close()
            with suppress(OSError):  # somebody was quicker: opening says so
                self._socket = _bound(self.address)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self.listening:
            self._loop.remove_reader(self._socket)
        self.listening = False
        self._socket.close()

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            self._accepted(accepted)
            if not self.listening:
                return

    def _resume(self) -> None:
        if self.listening:
            self._loop.add_reader(self._socket, self._readable)


def _bound(address: Address) -> socket.socket:
    family, host, port = address
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        # Without this, whoever sets the option could listen while we do not.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        found.close()
        raise _words(error, address) from error
    return found


def _words(error: OSError, address: Address) -> OSError:
    where = shown(address)
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return OSError(error.errno, f"listen tcp {where}: bind: {reason}")


def shown(address: Address) -> str:
    """``host:port``, an IPv6 host in brackets."""
    _, host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
