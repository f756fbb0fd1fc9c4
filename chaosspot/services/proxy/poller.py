"""Watches the sockets of all links of one event loop, and lets others have their turn.

The loop itself would call every link that is ready before it comes to anything else: with a
thousand of them that is long, and whoever asks the API would wait for it several times.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from chaosspot.services.proxy.carrier import Carrier

__all__ = ["Poller"]

_TURN_S = 0.002
_AT_ONCE = 32
_READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
_WRITE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR

_Callback = Callable[[], object]


class Poller:
    """Calls back when sockets can be read or written, on the running loop."""

    def __init__(self) -> None:
        self.carrier = Carrier()
        self._readers: dict[int, _Callback] = {}
        self._writers: dict[int, _Callback] = {}
        self._ready: deque[tuple[int, int]] = deque()  # told by epoll, and not yet called
        self._epoll = select.epoll()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._turn)

    def reading(self, sock: socket.socket, call: _Callback | None) -> None:
        """Call when there is something to read, or when the end has come; None: not any more."""
        self._watch(sock.fileno(), self._readers, call)

    def writing(self, sock: socket.socket, call: _Callback | None) -> None:
        """Call when there is room, or nobody to write to; None: not any more."""
        self._watch(sock.fileno(), self._writers, call)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self.carrier.close()

    def _watch(self, fd: int, calls: dict[int, _Callback], call: _Callback | None) -> None:
        before = self._events(fd)
        if call is None:
            calls.pop(fd, None)
        else:
            calls[fd] = call
        after = self._events(fd)
        if not before and after:
            self._epoll.register(fd, after)
        elif before and not after:
            self._epoll.unregister(fd)  # else the end of the connection would be told for ever
        elif before != after:
            self._epoll.modify(fd, after)

    def _events(self, fd: int) -> int:
        return select.EPOLLIN * (fd in self._readers) | select.EPOLLOUT * (fd in self._writers)

    def _turn(self) -> None:
        end_s = time.monotonic() + _TURN_S
        if not self._ready:
            self._ready.extend(self._epoll.poll(0, _AT_ONCE))
        while self._ready:
            fd, events = self._ready.popleft()
            if events & _READ and (call := self._readers.get(fd)):
                call()
            if events & _WRITE and (call := self._writers.get(fd)):
                call()
            if time.monotonic() >= end_s:
                return  # the others come first the next time
