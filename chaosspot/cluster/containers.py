"""Nodes as containers of a Docker daemon of this machine, each with a network of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from chaosspot.cluster import Cut, Launch, Place
from chaosspot.cluster.container_life import ContainerLife
from chaosspot.cluster.container_settings import Room
from chaosspot.cluster.daemon import Daemon
from chaosspot.cluster.exhaustion import exhaust
from chaosspot.cluster.image import of_image, of_machine
from chaosspot.cluster.namespaces import Namespace
from chaosspot.cluster.partitions import Member, Partitions
from chaosspot.cluster.processes import ProcessCluster
from chaosspot.cluster.resolver import Resolver
from chaosspot.cluster.silence import Silence
from chaosspot.cluster.throttling import Throttling
from chaosspot.schedule import Node
from chaosspot.undo import Containers, Directory, Lease
from chaosspot.undo.docker import LEASE, LEASES

__all__ = ["COORDINATOR_PORT", "ContainerCluster"]

COORDINATOR_PORT = 29510
_BOOT_S = 180.0  # a daemon on a busy machine starts many containers one after another
_THREADS = 24  # most wait for the daemon
_DNS = ("169.254.169.254", 53)  # where Google Cloud has its own


class ContainerCluster(ProcessCluster):
    """A container per node: a bridge network a zone, and one between the zones.

    A node is still a supervisor and what is below it, so that everything is seen from outside as
    with processes; that it is alone in namespaces of its own is what differs. What the daemon has
    of it is labelled with the lease, and promised to that before it is made.

    Args:
        image: a real image; without one it is this machine's own programs, read-only.
        shares: folders that nodes may write to.
        reads: files and folders that are seen inside, read-only, beside what the backend needs.
    """

    patience_s = 30.0  # the kernel kills at once; the daemon takes note when it can

    def __init__(
        self,
        *,
        run: Path,
        lease: Lease,
        image: str | None = None,
        shares: Iterable[Path] = (),
        reads: Iterable[Path] = (),
    ) -> None:
        super().__init__(run=run, lease=lease)
        self._image = image
        self._shares = tuple(shares)
        self._reads = tuple(reads)
        self._networks: dict[str, str] = {}  # ids by name
        self._one_at_a_time = anyio.Lock()
        self._resolvers: dict[str, asyncio.DatagramTransport] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._threads = anyio.CapacityLimiter(_THREADS)
        try:
            await self._prepare()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._partitions = Partitions(self._members, self._threads)
        self._throttling = Throttling(self._threads)
        self._silence = Silence(self._threads)
        return self

    async def _prepare(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"chaosspot-{secrets.token_hex(6)}"
        home = Directory(path=str(self._folder), within=str(self._folder.parent))
        self._home_token = self._lease.promise(home)
        self._folder.mkdir(mode=0o700)
        self._daemon: Daemon = await self._thread(Daemon)
        self._watch: socket.socket = await self._thread(self._daemon.watch)
        self._token = self._lease.promise(
            Containers(socket=self._daemon.path, lease=self._lease.id)
        )
        reads = list(self._reads)
        self._room = Room(
            labels={LEASE: self._lease.id, LEASES: str(self._lease.directory.parent)},
            inside=await self._thread(
                lambda: (
                    of_machine(self._daemon, reads)
                    if self._image is None
                    else of_image(self._daemon, self._image, reads)
                )
            ),
            writes=tuple(map(str, self._shares)),
            reads=(),
            folder=self._folder,
        )
        self._between = await self._network("between")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            with anyio.CancelScope(shield=True):
                for transport in self._resolvers.values():
                    transport.close()
                await self._leave()

    async def _leave(self) -> None:
        """Remove the networks. What cannot be removed keeps its promise open."""
        daemon = getattr(self, "_daemon", None)
        if daemon is not None:
            with contextlib.suppress(OSError):
                for which in self._networks.values():
                    await self._thread(lambda which=which: daemon.remove_network(which))
                left = all(life.gone is not None for life in self._lives.values())
                if left and hasattr(self, "_token"):
                    self._lease.kept(self._token)
            daemon.close()
        if hasattr(self, "_watch"):
            self._watch.close()
        if hasattr(self, "_home_token"):
            with contextlib.suppress(OSError):
                await self._thread(lambda: shutil.rmtree(self._folder))
                self._lease.kept(self._home_token)

    async def lost(self) -> str:
        """Wait until the daemon is gone, which ends the connection that it was asked to keep."""
        while True:
            await anyio.wait_readable(self._watch)
            try:
                if self._watch.recv(1 << 16):
                    continue  # the head of its answer
            except BlockingIOError:
                continue
            except OSError:
                pass
            return f"the docker daemon at {self._daemon.path} went away"

    def coordinator_address(self, seed: str) -> str:
        """The coordinator's name, and a port that is free in a network of its own."""
        return f"coordinator:{COORDINATOR_PORT}"

    async def boot(self, node: Node, *, log: Path) -> Place:
        """Start the node's container, in which nothing runs yet.

        Raises:
            OSError: the daemon says no, or the container ends at once; says why.
            ValueError: the node lives, or its name cannot be used.
        """
        networks = [self._between]
        if node.role == "worker":
            networks.append(await self._network(f"zone-{node.zone}"))
        self._admit(node)
        life = ContainerLife(
            node=node,
            log=log,
            number=self._count,
            flash=self._disk(node.name),
            lease=self._lease,
            census=self._census,
            threads=self._threads,
            daemon=self._daemon,
            room=self._room,
            networks=networks,
            alias="coordinator" if node.role == "coordinator" else node.name,
        )
        self._begin(life)
        await self._come_to(life, life.booted, within_s=_BOOT_S)
        try:
            await self._answer_for_nobody(life)
            await self._partitions.join(node.name)
        except OSError as error:
            await self.kill([node.name])
            raise OSError(f"{node.name}: {error}") from error
        return life.place

    async def start(self, node: Node, launch: Launch) -> None:
        """Start the ranks in the node's container, which is made if it has not been.

        Raises:
            OSError: the command cannot be started, or the container not be made; says why.
            ValueError: the node lives, or its name cannot be used.
        """
        life = self._lives.get(node.name)
        if life is None or life.ended.is_set() or life.started.is_set():
            await self.boot(node, log=launch.log)
        life = self._life(node.name)
        life.tell(launch)
        await self._come_to(life, life.started, within_s=_BOOT_S)

    # What only nodes with a network and limits of their own can suffer.

    async def cut(self, names: Sequence[str], cut: Cut) -> tuple[int, dict[str, float]]:
        """Cut nodes off; a number, and when each was seen cut off over all its networks."""
        self._find(names)
        return await self._partitions.cut(names, cut)

    async def mend(self, number: int) -> None:
        """Undo a cut, verified."""
        await self._partitions.mend(number)

    async def exhaust(self, name: str) -> float | None:
        """Let the kernel kill for want of memory; when the node was seen gone, or None."""
        self._find([name])
        life = self._life(name)
        if not await exhaust(life, self._lease, self._threads):
            return None
        gone = await self.kill([name])
        return gone[name].t

    async def throttle(self, names: Sequence[str], *, cpus: float) -> None:
        """Leave the nodes so many processors."""
        self._find(names)
        await self._throttling.begin([self._life(name) for name in names], cpus=cpus)

    async def throttled(self, names: Sequence[str]) -> dict[str, float]:
        """Who was held back since, and when that was seen."""
        return await self._throttling.seen([self._life(name) for name in names])

    async def unthrottle(self, names: Sequence[str]) -> None:
        """Give the nodes back what they had."""
        await self._throttling.end([self._life(name) for name in names])

    async def hush(self, names: Sequence[str]) -> dict[str, float]:
        """Let nobody answer who asks for a name; when each was seen to get no answer."""
        self._find(names)
        return await self._silence.begin([self._life(name) for name in names])

    async def unhush(self, names: Sequence[str]) -> None:
        """Names are answered again, verified."""
        await self._silence.end([self._life(name) for name in names])

    # Inside.

    def _life(self, name: str) -> ContainerLife:
        life = self._lives[name]
        assert isinstance(life, ContainerLife)
        return life

    def _members(self) -> list[Member]:
        """The nodes that have a network now."""
        return [
            Member(node=life.node, network=life.network, addresses=life.addresses)
            for life in self._lives.values()
            if isinstance(life, ContainerLife)
            and life.booted.is_set()
            and not life.empty.is_set()
            and isinstance(life.place.network, Namespace)
        ]

    async def _network(self, what: str) -> str:
        """The name of a network, which is made when it is asked for first."""
        name = f"chaosspot-{self._lease.id}-{what}"
        async with self._one_at_a_time:
            if name not in self._networks:
                labels = self._room.labels
                self._networks[name] = await self._thread(
                    lambda: self._daemon.network(name, labels)
                )
        return name

    async def _answer_for_nobody(self, life: ContainerLife) -> None:
        """A name that nobody has is answered so at once."""
        bound = await self._thread(lambda: life.network.datagrams(*_DNS))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Resolver, sock=bound)
        if (before := self._resolvers.pop(life.node.name, None)) is not None:
            before.close()
        self._resolvers[life.node.name] = transport
        self._tasks.start_soon(self._close_with, life, transport)

    async def _close_with(self, life: ContainerLife, transport: asyncio.DatagramTransport) -> None:
        with anyio.CancelScope(shield=True):
            await life.empty.wait()
        transport.close()

    async def _thread(self, act: Any) -> Any:
        return await anyio.to_thread.run_sync(act, limiter=self._threads)
