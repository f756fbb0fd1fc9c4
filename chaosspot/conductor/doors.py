"""How nodes with a network of their own reach what is in the harness's, and the reverse."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from chaosspot.cluster import Network
from chaosspot.services.relay import Dial, Relay

__all__ = ["LOOPBACK", "METADATA", "Doors"]

LOOPBACK = "127.0.0.1"
METADATA = "169.254.169.254"  # where every cloud has its metadata service, on port 80


class Doors:
    """The relays of a run, by the node whose life they last for."""

    def __init__(self) -> None:
        self._relays: dict[str, list[Relay]] = defaultdict(list)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Doors]:
        doors = cls()
        try:
            yield doors
        finally:
            with anyio.CancelScope(shield=True):
                for node in list(doors._relays):
                    await doors.shut(node)

    async def lead(
        self, node: str, network: Network | None, to: str, *, host: str = LOOPBACK, port: int = 0
    ) -> str:
        """The HOST:PORT by which the node reaches ``to``, which is in the harness's network."""
        if network is None:
            return to
        bound = await anyio.to_thread.run_sync(network.bind, host, port)
        return await self._relay(node, bound, _caller(to))

    async def back(self, network: Callable[[], Network | None], port: int) -> str:
        """The HOST:PORT here by which the harness reaches a port in the network of that moment."""
        bound = socket.socket()
        bound.setblocking(False)
        bound.bind((LOOPBACK, 0))

        async def dial() -> socket.socket:
            there = network()
            if there is None:
                raise ConnectionRefusedError(f"nobody is there to listen at port {port}")
            made = await anyio.to_thread.run_sync(there.caller)
            return await _connected(made, there.address, port)

        return await self._relay("", bound, dial)

    async def shut(self, node: str) -> None:
        """The node's life is over."""
        for relay in self._relays.pop(node, []):
            await relay.close()

    async def _relay(self, node: str, bound: socket.socket, dial: Dial) -> str:
        relay = Relay(bound, dial)
        self._relays[node].append(relay)
        await relay.open()
        return relay.address


def _caller(to: str) -> Dial:
    host, _, port = to.rpartition(":")

    async def dial() -> socket.socket:
        made = socket.socket()
        made.setblocking(False)
        return await _connected(made, host, int(port))

    return dial


async def _connected(made: socket.socket, host: str, port: int) -> socket.socket:
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made
