"""Nodes as process trees on this machine: the default backend."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, Self

import anyio
import anyio.to_thread

from chaosspot.cluster import Gone, Launch, Place
from chaosspot.cluster.census import Census
from chaosspot.cluster.flash import Flash
from chaosspot.cluster.life import Life
from chaosspot.cluster.throttle import lacking
from chaosspot.schedule import Node, Schedule, SlowFlash, draw
from chaosspot.undo import Lease, mounts

__all__ = ["ProcessCluster", "free_loopback_address", "unsupported"]

_START_S = 60.0  # a supervisor starts in 30 ms; a machine that swaps may take long
_THREADS = 4  # for fsync, /proc and removing directories


class ProcessCluster:
    """A supervisor process per node, which is the subreaper of the node's ranks.

    Everything it starts is promised to the lease first. It owns its tasks: use it as an async
    context manager, in one task; the methods may be called from any task of the same loop.
    """

    patience_s: ClassVar[float] = 1.0  # a supervisor kills in milliseconds, unless it is stopped

    def __init__(self, *, run: Path, lease: Lease) -> None:
        self._run = run.absolute()
        self._lease = lease
        self._lives: dict[str, Life] = {}
        self._disks: dict[str, Flash] = {}
        self._count = 0

    async def __aenter__(self) -> Self:
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._census = Census(self._threads)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            lives = [life for life in self._lives.values() if not life.ended.is_set()]
            for life in lives:
                life.kill()
            # What cannot be killed or removed keeps its promise open: the lease reports it.
            await self._await_ends(lives, self.patience_s)
            for disk in self._disks.values():
                with contextlib.suppress(OSError):
                    await anyio.to_thread.run_sync(disk.remove, limiter=self._threads)
            with contextlib.suppress(OSError):  # never made, or not empty
                (self._run / "nodes").rmdir()
        if isinstance(error, Exception):
            kind = error = trace = None  # the tasks are not its cause: no group around it
        await self._tasks.__aexit__(kind, error, trace)

    async def lost(self) -> str:
        """Never: nothing but the harness keeps processes."""
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    def flash(self, name: str) -> Path:
        """The node's own disk; it dies with the node."""
        return self._run / "nodes" / name / "flash"

    def coordinator_address(self, seed: str) -> str:
        """HOST:PORT that nothing listens at, on a loopback address of this run's own."""
        return free_loopback_address(seed)

    async def boot(self, node: Node, *, log: Path) -> Place:
        """Nothing is to be made: nodes share what the harness has."""
        return Place()

    async def start(self, node: Node, launch: Launch) -> None:
        """Start the node's process tree; again with the same name: its next incarnation.

        Raises:
            OSError: the command cannot be started, or the flash not be limited; says why.
            ValueError: the node lives, or its name cannot be a directory's.
        """
        self._admit(node)
        life = Life(
            node=node,
            launch=launch,
            number=self._count,
            flash=self._disk(node.name),
            lease=self._lease,
            census=self._census,
            threads=self._threads,
        )
        self._begin(life)
        await self._come_to(life, life.started, within_s=_START_S)

    async def kill(self, names: Sequence[str], *, keep_flash: bool = False) -> dict[str, Gone]:
        """SIGKILL the whole trees at once; returns when all are verified gone.

        Raises:
            OSError: something cannot be killed; names the processes.
        """
        lives = self._find(names)
        for life in lives:
            life.keep_flash = life.keep_flash or keep_flash
            life.kill()
        await self._await_ends(lives, self.patience_s)
        await self._drop_flashes(lives)
        return {life.node.name: _gone(life) for life in lives}

    async def terminate(
        self,
        names: Sequence[str],
        *,
        grace_s: float,
        scope: Literal["tree", "main"] = "tree",
        sent: Callable[[], None] = lambda: None,
    ) -> dict[str, Gone]:
        """SIGTERM, and SIGKILL to what is left of the trees after ``grace_s``.

        The signal goes to every process of the trees, or to the main process of each rank. In the
        second case what the ranks leave behind gets a moment to notice it, as when they end by
        themselves.
        """
        lives = self._find(names)
        for life in lives:
            await life.started.wait()
        for life in lives:
            life.terminate(grace_s, scope)
        sent()
        await self._await_ends(lives, grace_s + self.patience_s)
        await self._drop_flashes(lives)
        return {life.node.name: _gone(life) for life in lives}

    async def pause(self, names: Sequence[str]) -> dict[str, float]:
        """SIGSTOP every process of the trees; when each was seen stopped, without the dead.

        Raises:
            OSError: one cannot be stopped; all go on again.
        """
        paused: dict[str, float] = {}
        problems: list[OSError] = []

        async def one(life: Life) -> None:
            await life.started.wait()
            try:
                t = await life.pause()
            except OSError as error:
                problems.append(error)
                return
            if t is not None:
                paused[life.node.name] = t

        try:
            async with anyio.create_task_group() as tasks:
                for life in self._find(names):
                    tasks.start_soon(one, life)
            if problems:
                raise problems[0]
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.resume(list(paused))
            raise
        return paused

    async def resume(self, names: Sequence[str]) -> None:
        """SIGCONT what :meth:`pause` stopped, verified; nothing for nodes that are gone.

        Raises:
            OSError: something stays stopped; names the processes.
        """
        for life in self._find(names):
            await life.resume()

    async def kill_child(self, name: str) -> float | None:
        """SIGKILL the youngest leaf below the node's ranks; when it was seen gone, or None."""
        (life,) = self._find([name])
        await life.started.wait()
        return await life.kill_child()

    async def fill_flash(self, name: str) -> float | None:
        """Leave no space on the node's flash; when it was full, None if the flash is gone.

        Raises:
            OSError: the flash is not limited, or could not be filled.
        """
        self._find([name])
        filled = await anyio.to_thread.run_sync(self._disks[name].fill, limiter=self._threads)
        return time.monotonic() if filled else None

    async def free_flash(self, name: str) -> None:
        """Give back the space that :meth:`fill_flash` took; nothing for nodes that are gone."""
        self._find([name])
        await anyio.to_thread.run_sync(self._disks[name].free, limiter=self._threads)

    async def slow_flash(self, name: str, write_bytes_per_s: int) -> float | None:
        """Let the node write no faster than that; since when, None if it is gone.

        Raises:
            OSError: the flash cannot be slowed.
        """
        (life,) = self._find([name])
        await life.started.wait()
        return await life.slow_flash(write_bytes_per_s)

    async def mend_flash(self, name: str) -> int:
        """Take back one :meth:`slow_flash`; how many bytes the node wrote since the first."""
        (life,) = self._find([name])
        return await life.mend_flash()

    async def gone(self, name: str) -> Gone:
        """Wait until nothing of the node's tree lives any more, by whatever cause."""
        (life,) = self._find([name])
        await life.ended.wait()
        return _gone(life)

    def alive(self) -> list[Node]:
        """Nodes whose tree lives now, in the order they were started."""
        lives = self._lives.values()
        return [life.node for life in lives if life.started.is_set() and not life.empty.is_set()]

    def _admit(self, node: Node) -> None:
        """See that the node can begin its next life, and count that."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", node.name):
            raise ValueError(f"node name {node.name!r}: letters, digits, '.', '_' and '-' only")
        before = self._lives.get(node.name)
        if before and not before.ended.is_set():
            raise ValueError(f"{node.name} lives: end it before it is started again")
        self._count += 1

    def _begin(self, life: Life) -> None:
        self._lives.pop(life.node.name, None)  # so that it is the latest in order
        self._lives[life.node.name] = life
        self._tasks.start_soon(life.run)

    async def _come_to(self, life: Life, event: anyio.Event, *, within_s: float) -> None:
        """Wait for an event of a life that begins; end it if that does not come."""
        try:
            with anyio.fail_after(within_s):
                await event.wait()
        except BaseException as error:
            life.kill()
            with anyio.CancelScope(shield=True):
                await self._await_end(life, self.patience_s)
            if isinstance(error, TimeoutError):
                name = life.node.name
                raise TimeoutError(f"{name} did not start within {within_s} s") from error
            raise
        if life.problem:
            del self._lives[life.node.name]
            raise life.problem

    def _find(self, names: Sequence[str]) -> list[Life]:
        """Their latest incarnations; all or none."""
        if unknown := [name for name in names if name not in self._lives]:
            known = ", ".join(self._lives) or "none"
            raise LookupError(f"no node {unknown[0]!r} was started; started: {known}")
        return [self._lives[name] for name in dict.fromkeys(names)]

    def _disk(self, name: str) -> Flash:
        if name not in self._disks:
            self._disks[name] = Flash(path=self.flash(name), run=self._run, lease=self._lease)
        return self._disks[name]

    async def _drop_flashes(self, lives: Iterable[Life]) -> None:
        """Who is taken loses its flash, even if it had ended by itself and kept it so far."""
        for life in lives:
            if not life.keep_flash and life.problem is None:
                await life.drop_flash()

    async def _await_ends(self, lives: Iterable[Life], patience_s: float) -> None:
        async with anyio.create_task_group() as tasks:
            for life in lives:
                tasks.start_soon(self._await_end, life, patience_s)

    async def _await_end(self, life: Life, patience_s: float) -> None:
        """See a life end that was told to; without its supervisor's help if that takes long."""
        with anyio.move_on_after(patience_s):
            await life.empty.wait()
        if not life.empty.is_set():
            await life.force()
            with anyio.move_on_after(self.patience_s):
                await life.empty.wait()
        if not life.empty.is_set():
            life.abandon()
        await life.ended.wait()


def unsupported(schedule: Schedule, runs: Path) -> str | None:
    """What this machine cannot make of a schedule, and why; None if nothing.

    Args:
        runs: where the run directory would be.
    """
    for index, fault in enumerate(schedule.fault):
        if fault.NEEDS_ISOLATION:
            return (
                f"fault[{index}]: {fault.kind} needs nodes with a network and limits of their own, "
                "which processes do not have: cluster = 'containers'"
            )
    for group in schedule.cluster.group:
        for name in ("memory_bytes", "cpus", "pids"):
            if (value := getattr(group, name)) is not None:
                return f"{name} = {value}: processes are not limited: cluster = 'containers'"
    limits = [g.flash_bytes for g in schedule.cluster.group if g.flash_bytes is not None]
    if limits and not mounts.may_mount():
        return (
            f"flash_bytes = {limits[0]}: a flash of limited size is a file system of its own, and "
            "this process may not mount one (CAP_SYS_ADMIN): run as root, or leave flash_bytes out"
        )
    if any(isinstance(fault, SlowFlash) for fault in schedule.fault):
        return f"slow-flash: {why}" if (why := lacking(runs)) is not None else None
    return None


def free_loopback_address(seed: str) -> str:
    """``HOST:PORT`` that nothing listens at, on a loopback address of this run's own."""
    digits = [int(draw(0, seed, part) * 250) + 1 for part in range(3)]
    host = f"127.{64 + digits[0] % 64}.{digits[1]}.{digits[2]}"
    with socket.socket() as listener:
        listener.bind((host, 0))
        return f"{host}:{listener.getsockname()[1]}"


def _gone(life: Life) -> Gone:
    if life.gone is None:
        raise life.problem or OSError(f"{life.node.name}: lost")
    return life.gone
