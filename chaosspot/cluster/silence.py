"""Names that nobody answers for: what a node asks the resolver of its network is lost."""

from __future__ import annotations

import errno
import secrets
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from chaosspot.cluster.container_life import ContainerLife

__all__ = ["Silence"]

T = TypeVar("T")

_RESOLVER = "127.0.0.11"  # Docker's, in every network that is not its default one
_CHAIN = "CHAOSSPOT-NAMES"
_RESTORE = ("iptables-restore", "--wait=10", "--noflush")
_LOST_S = 0.4
_ANSWERS_S = 10.0
_AGAIN_S = 0.2
_BEGIN = f"""*filter
:{_CHAIN} - [0:0]
-A {_CHAIN} -d {_RESOLVER} -j DROP
-I OUTPUT 1 -j {_CHAIN}
COMMIT
"""
_END = f"""*filter
-D OUTPUT -j {_CHAIN}
-F {_CHAIN}
-X {_CHAIN}
COMMIT
"""


class Silence:
    """Of the nodes of one cluster. Nodes that are gone are left out."""

    def __init__(self, threads: anyio.CapacityLimiter) -> None:
        self._threads = threads
        self._times: dict[ContainerLife, int] = {}

    async def begin(self, lives: Sequence[ContainerLife]) -> dict[str, float]:
        """Let nobody answer them; when each was seen to get no answer.

        Raises:
            OSError: one that lives still gets one.
        """
        found: dict[str, float] = {}
        for life in lives:
            if self._times.get(life, 0) == 0 and not await self._do(life, _BEGIN):
                continue
            self._times[life] = self._times.get(life, 0) + 1
            if await self._thread(partial(_answered, life, within_s=_LOST_S)):
                raise OSError(f"{life.node.name} still gets answers from {_RESOLVER}")
            if not life.empty.is_set():
                found[life.node.name] = time.monotonic()
        return found

    async def end(self, lives: Sequence[ContainerLife]) -> None:
        """Let them be answered again, seen.

        Raises:
            OSError: one that lives gets no answer.
        """
        for life in lives:
            if life not in self._times:
                continue
            self._times[life] -= 1
            if self._times[life] or not await self._do(life, _END):
                continue
            del self._times[life]
            heard = await self._thread(partial(_answered, life, within_s=_ANSWERS_S))
            if not heard and not life.empty.is_set():
                raise OSError(f"{life.node.name} gets no answer from {_RESOLVER} after all")

    async def _do(self, life: ContainerLife, rules: str) -> bool:
        try:
            await self._thread(lambda: life.network.command(_RESTORE, rules))
        except OSError as error:
            if life.empty.is_set():
                return False
            if error.errno == errno.ENOENT:
                raise OSError(f"no {_RESTORE[0]} on this machine") from error
            raise
        return True

    async def _thread(self, act: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(act, limiter=self._threads)


def _answered(life: ContainerLife, *, within_s: float) -> bool:
    """Whether the node's own name is answered for in its network, asked from there."""
    try:
        asker = life.network.datagrams("127.0.0.1", 0)
    except OSError:
        return False
    with asker:
        number = secrets.token_bytes(2)
        labels = b"".join(bytes([len(part)]) + part for part in [life.node.name.encode()])
        question = number + b"\1\0\0\1" + bytes(6) + labels + b"\0\0\1\0\1"
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                asker.sendto(question, (_RESOLVER, 53))
            except OSError:
                return False
            if select.select([asker], (), (), min(_AGAIN_S, left_s))[0]:
                return asker.recv(512)[:2] == number
    return False
