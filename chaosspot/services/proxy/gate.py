"""One proxy: where it listens, what it leads to, its toxics and its connections."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial

from chaosspot.services.proxy.chain import Chain, strikes
from chaosspot.services.proxy.connection import Connection, dial, resetting
from chaosspot.services.proxy.link import Link
from chaosspot.services.proxy.listener import Address, Listener, resolve, shown
from chaosspot.services.proxy.poller import Poller
from chaosspot.services.proxy.values import Direction, Proxy, Toxic, Traffic, host_port

__all__ = ["DIRECTIONS", "BadAddress", "Gate"]

DIRECTIONS: tuple[Direction, Direction] = ("upstream", "downstream")


class BadAddress(OSError):
    """It is no address to listen on."""


class Gate:
    """A proxy at work, on the running loop. What fails leaves it as it was.

    Args:
        seed: decides, with names and numbers of connections, what is left to chance.
        check: refuses an address to listen on by raising OSError.
        link_ended: is told of each link that ended; of its bytes nobody else keeps count.
    """

    def __init__(
        self,
        *,
        name: str,
        listen: str,
        upstream: str,
        seed: int,
        poller: Poller,
        check: Callable[[Address], None],
        link_ended: Callable[[Gate, Direction, Link], None],
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.toxics: list[Toxic] = []  # in the order they came
        self._listen = listen  # as told; what is bound says more
        self._seed = seed
        self._poller = poller
        self._check = check
        self._link_ended = link_ended
        self._enabled = False
        self._gone = False
        self._listener: Listener | None = None
        self._connections: dict[int, Connection] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._struck: Counter[str] = Counter()
        self._passed: Counter[Direction] = Counter()

    # --- what it is ---------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        return self._enabled

    @property
    def listen(self) -> str:
        """Where it listens, or is to."""
        return self._listen if self._listener is None else shown(self._listener.address)

    def view(self) -> Proxy:
        """What it is now, as a value."""
        toxics = tuple(t for way in DIRECTIONS for t in self.toxics if t.direction == way)
        return Proxy(
            name=self.name,
            listen=self.listen,
            upstream=self.upstream,
            enabled=self._enabled,
            toxics=toxics,
        )

    def traffic(self) -> Traffic:
        """What has gone through it."""
        passed = Counter(self._passed)
        for connection in self._connections.values():
            for way, link in connection.links.items():
                passed[way] += link.sent_bytes
        return Traffic(
            connections=self._accepted,
            open=len(self._connections),
            upstream_bytes=passed["upstream"],
            downstream_bytes=passed["downstream"],
            struck={**self._struck, **dict.fromkeys(self._keeping_out(), 1)},
        )

    # --- changes ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Accept connections.

        Raises:
            OSError: it cannot listen there.
        """
        await self.update(enabled=True)

    async def update(
        self,
        *,
        listen: str | None = None,
        upstream: str | None = None,
        enabled: bool | None = None,
    ) -> None:
        """Move it, start it or stop it; what is None stays.

        Connections are closed when either address is another one, or when it is stopped.

        Raises:
            OSError: it cannot listen there.
        """
        address = await self._resolved(self.listen if listen is None else listen)
        own = await self._own_address()
        if self._gone:
            raise OSError("the proxy was removed meanwhile")
        if self._listener is not None:
            own = self._listener.address
        moves = listen is not None and address != own
        upstream = self.upstream if upstream is None else upstream
        enabled = self._enabled if enabled is None else enabled
        listener = None if moves else self._listener
        if enabled:
            listener = listener or Listener(address, self._accept)
            try:
                self._tend(listener, enabled)
            except OSError:
                if listener is not self._listener:
                    listener.close()
                raise
        if moves or upstream != self.upstream or not enabled:
            self._drop()
        if self._listener is not listener:
            self._unbind()
        self._enabled, self.upstream, self._listener = enabled, upstream, listener
        self._listen = self._listen if listen is None else listen
        self._tend(listener, enabled)

    async def is_at(self, listen: str) -> bool:
        """Whether it listens there, or is to; of no address, always."""
        try:
            return not listen or await self._own_address() == await self._resolved(listen)
        except OSError:
            return self._listen == listen

    async def close(self) -> None:
        """Let go of everything."""
        self._enabled, self._gone = False, True
        dials = list(self._dials)
        self._drop()
        self._unbind()
        await asyncio.gather(*dials, return_exceptions=True)

    def add(self, toxic: Toxic) -> None:
        """Append a toxic to its direction's chain, on open connections, too."""
        self.toxics.append(toxic)
        for connection in self._hit_by(toxic):
            connection.add(toxic)
        self._tend(self._listener, self._enabled)

    def replace(self, toxic: Toxic) -> None:
        """Put a toxic in the place of the one of its name."""
        index = next(i for i, known in enumerate(self.toxics) if known.name == toxic.name)
        self.toxics[index] = toxic
        for connection in self._hit_by(toxic):
            connection.update(toxic)
        self._tend(self._listener, self._enabled)

    def discard(self, toxic: Toxic) -> None:
        """Take a toxic out."""
        self.toxics.remove(toxic)
        for connection in self._hit_by(toxic):
            connection.remove(toxic)
        self._tend(self._listener, self._enabled)

    # --- inside -------------------------------------------------------------------------------

    async def _resolved(self, listen: str) -> Address:
        try:
            host, port = host_port(listen) if listen else ("", 0)
            address = await resolve(host, port)
        except (OSError, ValueError) as error:
            raise BadAddress(str(error)) from None
        self._check(address)
        return address

    async def _own_address(self) -> Address | None:
        if self._listener is not None:
            return self._listener.address
        try:
            return await self._resolved(self._listen)
        except OSError:
            return None  # as it was created, disabled

    def _tend(self, listener: Listener | None, enabled: bool) -> None:
        """Listen if it is to, and not if a toxic refuses all connections."""
        if listener is None:
            return
        if enabled and not self._refusing():
            listener.open()
        else:
            listener.shut()

    def _refusing(self) -> list[str]:
        """Toxics because of which nothing listens."""
        return [t.name for t in self.toxics if t.kind.refuses and t.toxicity >= 1]

    def _keeping_out(self) -> list[str]:
        """Those that have something to do. A closed port does not tell who knocks: they are taken
        to, once whoever came before is not connected any more."""
        return self._refusing() if self._accepted and not self._connections else []

    def _unbind(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _hit_by(self, toxic: Toxic) -> list[Connection]:
        return [] if toxic.kind.refuses else list(self._connections.values())

    def _drop(self) -> None:
        for connection in list(self._connections.values()):
            connection.drop()
        for task in self._dials:
            task.cancel()

    def _accept(self, client: socket.socket) -> None:
        number = self._accepted
        self._accepted += 1
        refusing = [t for t in self.toxics if t.kind.refuses]
        hit = [t.name for t in refusing if strikes(t, self._seed, self.name, number)]
        if hit:
            self._struck.update(hit)
            resetting(client)
            client.close()
            return
        task = asyncio.get_running_loop().create_task(self._connect(number, client))
        self._dials.add(task)
        task.add_done_callback(partial(self._dialed, client))

    def _dialed(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._dials.discard(task)
        if task.cancelled():
            client.close()

    async def _connect(self, number: int, client: socket.socket) -> None:
        """Lead a client to the server; one that cannot be reached is a client's closed door."""
        try:
            server = await dial(self.upstream)
        except (OSError, ValueError):
            client.close()
            return
        connection = Connection(
            number,
            client,
            server,
            chain_of=partial(self._chain, number),
            poller=self._poller,
            closed=self._closed,
        )
        self._connections[number] = connection
        connection.start()

    def _chain(self, number: int, way: Direction) -> Chain:
        return Chain(
            [t for t in self.toxics if t.direction == way and not t.kind.refuses],
            seed=self._seed,
            proxy=self.name,
            connection=number,
            now_s=asyncio.get_running_loop().time(),
            on_struck=self._strike,
        )

    def _strike(self, toxic: str) -> None:
        self._struck[toxic] += 1

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        for way, link in connection.links.items():
            self._passed[way] += link.sent_bytes
            self._link_ended(self, way, link)
