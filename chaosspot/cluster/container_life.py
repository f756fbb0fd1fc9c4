"""One incarnation of a node as a container, whose first process is the node's supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
from msgspec.structs import replace

from chaosspot.cluster import Gone, Launch, Place
from chaosspot.cluster.census import Census
from chaosspot.cluster.cgroup import Cgroup
from chaosspot.cluster.container_settings import Room, settings
from chaosspot.cluster.daemon import Daemon, DaemonError
from chaosspot.cluster.flash import Flash
from chaosspot.cluster.freezer import Freezer, FrozenGrip
from chaosspot.cluster.grip import Grip
from chaosspot.cluster.life import Life, lines
from chaosspot.cluster.namespaces import Namespace
from chaosspot.schedule import Node
from chaosspot.undo import Lease, procfs
from chaosspot.undo.ending import send
from chaosspot.undo.procfs import Process

__all__ = ["ContainerLife"]

T = TypeVar("T")

_ENDS_S = 10.0  # a killed container, until the kernel and then the daemon say so
_POLL_S = 0.01


class ContainerLife(Life):
    """A life whose place is made first, and filled when it is told what to launch.

    ``networks`` are names: the one between the zones, and the zone's where the node has one.
    """

    def __init__(
        self,
        *,
        node: Node,
        log: Path,
        number: int,
        flash: Flash,
        lease: Lease,
        census: Census,
        threads: anyio.CapacityLimiter,
        daemon: Daemon,
        room: Room,
        networks: Sequence[str],
        alias: str,
    ) -> None:
        super().__init__(
            node=node,
            launch=Launch(argv=(), environments=(), log=log),
            number=number,
            flash=flash,
            lease=lease,
            census=census,
            threads=threads,
        )
        self.booted = anyio.Event()
        self.place = Place()
        self.addresses: dict[str, str] = {}  # by network
        self.name = f"chaosspot-{lease.id}-{node.name}.{number}"
        self._daemon = daemon
        self._room = room
        self._networks = networks
        self._alias = alias
        self._told = anyio.Event()
        self._doomed = anyio.Event()
        self._id = ""
        self._init: Process | None = None
        self._freezer: Freezer | None = None
        self._end = -1  # readable when the first process has ended

    # What is asked of it.

    def tell(self, launch: Launch) -> None:
        """What to start, once it has booted."""
        drops, own = self._room.inside.drops, self._room.inside.environment
        environments = tuple(
            {**{k: v for k, v in given.items() if k not in drops}, **own, **self.place.environment}
            for given in launch.environments
        )
        self._launch = replace(launch, environments=environments)
        self._told.set()

    def kill(self) -> None:
        """SIGKILL to the first process takes all of a container; valid at any moment."""
        super().kill()
        self._doomed.set()
        if self._init is not None:
            send(self._init, signal.SIGKILL)

    async def force(self) -> None:
        """Kill it without its supervisor's help; errors end up in ``problem``."""
        with contextlib.suppress(OSError):
            if self._freezer is not None:
                await self._thread(self._freezer.thaw)
        await super().force()

    @property
    def network(self) -> Namespace:
        """Its network.

        Raises:
            OSError: it has none yet.
        """
        if not isinstance(self.place.network, Namespace):
            raise OSError(f"{self.node.name} has no network yet")
        return self.place.network

    @property
    def cgroup(self) -> Cgroup:
        """What the kernel counts for it.

        Raises:
            OSError: it is gone.
        """
        if self._init is None or not self._init.is_now():
            raise OSError(f"{self.node.name} is gone")
        return Cgroup(self._init.pid)

    async def limit(self, **limits: int) -> None:
        """Set limits, by the names of the daemon's API."""
        await self._thread(lambda: self._daemon.update(self._id, **limits))

    # Its life.

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self.booted.set()
            if isinstance(self.place.network, Namespace):
                self.place.network.close()
            if self._end >= 0:
                os.close(self._end)
                self._end = -1

    async def _follow(self, token: int) -> dict[str, Any]:
        folder = self._room.folder / f"{self._number}"
        folder.mkdir(mode=0o700)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.bind(str(folder / "channel"))
            listener.listen(1)
            await self._thread(lambda: self._create(folder))
            assert self._init is not None
            self._known.append(self._init)
            init, ticks = self._init.pid, self._init.start_ticks
            self._tree = replace(self._tree, supervisor=init, start_ticks=ticks)
            await self._thread(lambda: self._lease.amend(token, self._tree))
            if self._killed:
                self.kill()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._thaw_the_doomed)
                last = await self._fill(listener)
                tasks.cancel_scope.cancel()
            return last
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                (folder / "channel").unlink(missing_ok=True)
                folder.rmdir()

    async def _fill(self, listener: socket.socket) -> dict[str, Any]:
        """From the supervisor's call to its end; its last report."""
        last: dict[str, Any] = {}

        async def called() -> bool:
            await anyio.wait_readable(listener)
            return True

        if not await self._while_it_lives(called):
            if not self._killed:
                raise OSError(await self._thread(self._why))
            return last
        channel, _ = listener.accept()
        channel.setblocking(False)
        self._channel.close()
        self._channel = channel
        self.booted.set()

        async def told() -> bool:
            await self._told.wait()
            return True

        if await self._while_it_lives(told):
            await self._send_launch()
        async for report in lines(self._channel.fileno()):
            last = report
            self._note(report)
        with anyio.move_on_after(_ENDS_S):
            await anyio.wait_readable(self._end)
        return last

    async def _verify(self, last: dict[str, Any]) -> Gone:
        """See it gone by the kernel and by the daemon, and remove what the daemon kept of it."""
        gone = await super()._verify(last)
        await self._thread(self._remove)
        if self._killed and gone.code is None:
            gone = replace(gone, code=-signal.SIGKILL)
        return gone

    def _note(self, report: dict[str, Any]) -> None:
        if "ranks" in report:  # by the numbers that they have inside
            known = {_inner(pid): pid for pid in procfs.children(self._tree.supervisor or 0)}
            ranks = [(known.get(pid), ticks) for pid, ticks in report["ranks"]]
            report = {"ranks": [[pid, ticks] for pid, ticks in ranks if pid is not None]}
        super()._note(report)

    def _gripped(self, mains: list[Process]) -> Grip:
        assert self._freezer is not None
        return FrozenGrip(self._freezer, tree=self._tree, mains=mains, lease=self._lease)

    # In a thread.

    def _create(self, folder: Path) -> None:
        try:
            self._id = self._daemon.create(**self._settings(folder))
            self._daemon.start(self._id)
            told = self._daemon.inspect(self._id) or {"State": {"Pid": 0}}
        except DaemonError as error:
            raise OSError(f"{self.node.name}: {error}") from error
        process = procfs.read(told["State"]["Pid"]) if told["State"]["Pid"] else None
        if process is None:
            raise OSError(self._why())
        self._init = process
        self._freezer = Freezer(self._daemon, self._id, process, self.node.name)
        self._end = os.pidfd_open(process.pid)
        ends = told["NetworkSettings"]["Networks"]
        self.addresses = {name: ends[name]["IPAddress"] for name in self._networks}
        network = Namespace(process.pid)
        self.place = Place(network=network, python=self._room.inside.python)
        network.seclude()
        main = self.addresses[self._networks[0]]
        network.address = main
        interface = network.interface(main)
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        environment = {"CHAOSSPOT_HOST": self.node.name, **dict.fromkeys(names, interface)}
        self.place = Place(
            network=network, environment=environment, python=self._room.inside.python
        )

    def _settings(self, folder: Path) -> dict[str, Any]:
        log = self._launch.log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        return settings(
            self.node,
            self._room,
            name=self.name,
            alias=self._alias,
            networks=self._networks,
            marks={procfs.RUN: self._lease.id, procfs.TREE: self._tree.cookie},
            folder=folder,
            log=log,
            flash=self._flash.path,
        )

    def _why(self) -> str:
        """What became of a container that ended before it said anything."""
        told = self._daemon.inspect(self._id)
        state = told["State"] if told else {"Error": "it is gone", "ExitCode": "unknown"}
        said = state.get("Error") or f"exit code {state['ExitCode']}"
        last = self._daemon.last_words(self._id)
        why = ": ".join(filter(None, (said, last)))
        return f"{self.node.name}: its container ended at once: {why}"

    def _remove(self) -> None:
        """See that the daemon knows the container's end, and that it keeps nothing of it."""
        if not self._id:
            return
        deadline = time.monotonic() + _ENDS_S
        while (told := self._daemon.inspect(self._id)) is not None and told["State"]["Running"]:
            if time.monotonic() > deadline:
                break  # it is removed by force then
            time.sleep(_POLL_S)
        self._daemon.remove(self._id)
        if self._daemon.inspect(self._id) is not None:
            raise OSError(f"{self.node.name}: its container {self.name} is still there")

    # Beside it.

    async def _thaw_the_doomed(self) -> None:
        """What is frozen does not die."""
        await self._doomed.wait()
        if isinstance(self._grip, FrozenGrip) and self._grip.frozen:
            with contextlib.suppress(OSError):
                await self._thread(self._grip.freezer.thaw)

    async def _while_it_lives(self, act: Callable[[], Awaitable[T]]) -> T | None:
        """What ``act`` returns; None if the container ends before."""
        results: list[T] = []

        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await anyio.wait_readable(self._end)
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            results.append(await act())
            tasks.cancel_scope.cancel()
        return results[0] if results else None


def _inner(pid: int) -> int:
    """The number that a process has in its own namespace; 0 when it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return 0
