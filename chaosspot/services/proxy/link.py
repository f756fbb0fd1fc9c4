"""One direction of one connection: from a socket through the toxics to a socket.

Bytes that no toxic is in the way of go from socket to socket as they come. Everything else is the
chain's to decide.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable
from typing import Literal

from chaosspot.services.proxy.chain import Chain
from chaosspot.services.proxy.poller import Poller
from chaosspot.services.proxy.toxics.pipe import Event

__all__ = ["End", "Link"]

_CHUNK_BYTES = 1 << 15  # what toxics see at once, as with Toxiproxy
_AT_ONCE = 32  # chunks sent before others get their turn

End = Literal["close", "half", "reset", "broken"]


class Link:
    """Carries bytes from ``source`` to ``target``.

    Args:
        chain: what is done to them.
        ended: is told how it ended, once; the link has let go of both sockets then.
    """

    def __init__(
        self,
        chain: Chain,
        source: socket.socket,
        target: socket.socket,
        *,
        poller: Poller,
        ended: Callable[[Link, End], object],
    ) -> None:
        self.chain = chain
        self.source = source
        self.target = target
        self.received_bytes = 0
        self.sent_bytes = 0
        self.over = False
        self.broken = False
        self._poller = poller
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._rest: memoryview | None = None  # what the target had no room for
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None

    def work(self) -> None:
        """Do what can be done now; to be called at the start and after a change of the chain."""
        if self.over:
            return
        chain = self.chain
        sent = 0
        now_s = self._loop.time()  # what sending takes is not to count as a reader's slowness
        while True:
            chain.advance(now_s)
            if chain.reset:
                self._end("reset")
                return
            if self._rest is not None or not chain.outbox:
                break
            if sent == _AT_ONCE:
                if self._turn is None:
                    self._turn = self._loop.call_soon(self._next_turn)
                break
            item = chain.outbox.popleft()
            if item is Event.END:
                self._end("half" if chain.half else "close")
                return
            assert not isinstance(item, Event)
            sent += 1
            if not self._send(item.data):
                return
        self._attend()

    def source_gone(self) -> None:
        """The source has been closed, or is about to be: what has been read still goes on."""
        self._read(False)
        self.chain.end()
        self.work()

    def stop(self) -> None:
        """Let go of both sockets."""
        if self.over:
            return
        self.over = True
        self._read(False)
        if self._rest is not None:
            self._rest = None
            self._poller.writing(self.target, None)
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()

    # --- inside -------------------------------------------------------------------------------

    def _readable(self) -> None:
        if not self.chain.idle:
            try:
                data = self.source.recv(_CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            self.received_bytes += len(data)
            if data:
                self.chain.put(data, self._loop.time())
                self.work()
            else:
                self.source_gone()
            return
        try:
            count, rest = self._poller.carrier.carry(self.source, self.target)
        except (BlockingIOError, InterruptedError):
            return
        except BrokenPipeError:
            self.broken = True
            self._end("broken")
            return
        except OSError:
            count, rest = 0, b""
        self.received_bytes += count
        self.sent_bytes += count - len(rest)
        if not count:
            self.source_gone()
        elif rest:
            self._keep(rest)
            self._attend()

    def _send(self, data: bytes) -> bool:
        """Send, and keep what there is no room for; False when the target is gone."""
        try:
            sent = self.target.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.broken = True
            self._end("broken")
            return False
        self.sent_bytes += sent
        if sent < len(data):
            self._keep(data[sent:])
        return True

    def _keep(self, rest: bytes) -> None:
        """Send this when there is room."""
        self._rest = memoryview(rest)
        self._poller.writing(self.target, self._writable)

    def _writable(self) -> None:
        assert self._rest is not None
        try:
            sent = self.target.send(self._rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.broken = True
            self._end("broken")
            return
        self.sent_bytes += sent
        self._rest = self._rest[sent:]
        if not self._rest:
            self._rest = None
            self._poller.writing(self.target, None)
            self.work()

    def _next_turn(self) -> None:
        self._turn = None
        self.work()

    def _attend(self) -> None:
        """Read if there is room for what may come, and wake when something is due."""
        idle = self.chain.idle
        self._read(self._rest is None if idle and not self.chain.ended else self.chain.room)
        next_s = math.inf if idle else self.chain.next_s
        if self._timer is not None and self._timer.when() > next_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and next_s < math.inf:
            self._timer = self._loop.call_at(next_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.work()

    def _read(self, wanted: bool) -> None:
        if wanted != self._reading:
            self._reading = wanted
            self._poller.reading(self.source, self._readable if wanted else None)

    def _end(self, how: End) -> None:
        self.stop()
        self._ended(self, how)
