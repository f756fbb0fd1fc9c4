"""Nodes as process trees on this machine: the default backend."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import anyio
import anyio.to_thread

from chaosspot.cluster import Gone, Launch
from chaosspot.cluster.census import Census
from chaosspot.cluster.flash import Flash
from chaosspot.cluster.life import Life
from chaosspot.schedule import Node, Schedule
from chaosspot.undo import Lease, mounts

__all__ = ["ProcessCluster", "unsupported"]

_START_S = 60.0  # a supervisor starts in 30 ms; a machine that swaps may take long
_PATIENCE_S = 1.0  # a supervisor kills in milliseconds; one that is stopped never does
_THREADS = 4  # for fsync, /proc and removing directories


class ProcessCluster:
    """A supervisor process per node, which is the subreaper of the node's ranks.

    Everything it starts is promised to the lease first. It owns its tasks: use it as an async
    context manager, in one task; the methods may be called from any task of the same loop.
    """

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
            await self._await_ends(lives, _PATIENCE_S)
            for disk in self._disks.values():
                with contextlib.suppress(OSError):
                    await anyio.to_thread.run_sync(disk.remove, limiter=self._threads)
            with contextlib.suppress(OSError):  # never made, or not empty
                (self._run / "nodes").rmdir()
        if isinstance(error, Exception):
            kind = error = trace = None  # the tasks are not its cause: no group around it
        await self._tasks.__aexit__(kind, error, trace)

    def flash(self, name: str) -> Path:
        """The node's own disk; it dies with the node."""
        return self._run / "nodes" / name / "flash"

    async def start(self, node: Node, launch: Launch) -> None:
        """Start the node's process tree; again with the same name: its next incarnation.

        Raises:
            OSError: the command cannot be started, or the flash not be limited; says why.
            ValueError: the node lives, or its name cannot be a directory's.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", node.name):
            raise ValueError(f"node name {node.name!r}: letters, digits, '.', '_' and '-' only")
        before = self._lives.get(node.name)
        if before and not before.ended.is_set():
            raise ValueError(f"{node.name} lives: end it before it is started again")
        self._count += 1
        life = Life(
            node=node,
            launch=launch,
            number=self._count,
            flash=self._disk(node.name),
            lease=self._lease,
            census=self._census,
            threads=self._threads,
        )
        self._lives.pop(node.name, None)  # so that it is the latest in order
        self._lives[node.name] = life
        self._tasks.start_soon(life.run)
        try:
            with anyio.fail_after(_START_S):
                await life.started.wait()
        except BaseException as error:
            life.kill()
            with anyio.CancelScope(shield=True):
                await self._await_end(life, _PATIENCE_S)
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{node.name} did not start within {_START_S} s") from error
            raise
        if life.problem:
            del self._lives[node.name]
            raise life.problem

    async def kill(self, names: Sequence[str], *, keep_flash: bool = False) -> dict[str, Gone]:
        """SIGKILL the whole trees at once; returns when all are verified gone.

        Raises:
            OSError: something cannot be killed; names the processes.
        """
        lives = self._find(names)
        for life in lives:
            life.keep_flash = life.keep_flash or keep_flash
            life.kill()
        await self._await_ends(lives, _PATIENCE_S)
        await self._drop_flashes(lives)
        return {life.node.name: _gone(life) for life in lives}

    async def terminate(
        self, names: Sequence[str], *, grace_s: float, scope: Literal["tree", "main"] = "tree"
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
        await self._await_ends(lives, grace_s + _PATIENCE_S)
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

    async def gone(self, name: str) -> Gone:
        """Wait until nothing of the node's tree lives any more, by whatever cause."""
        (life,) = self._find([name])
        await life.ended.wait()
        return _gone(life)

    def alive(self) -> list[Node]:
        """Nodes whose tree lives now, in the order they were started."""
        lives = self._lives.values()
        return [life.node for life in lives if life.started.is_set() and not life.empty.is_set()]

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
            with anyio.move_on_after(_PATIENCE_S):
                await life.empty.wait()
        if not life.empty.is_set():
            life.abandon()
        await life.ended.wait()


def unsupported(schedule: Schedule) -> str | None:
    """What this machine cannot make of a schedule, and why; None if nothing."""
    limits = [g.flash_bytes for g in schedule.cluster.group if g.flash_bytes is not None]
    if limits and not mounts.may_mount():
        return (
            f"flash_bytes = {limits[0]}: a flash of limited size is a file system of its own, and "
            "this process may not mount one (CAP_SYS_ADMIN): run as root, or leave flash_bytes out"
        )
    return None


def _gone(life: Life) -> Gone:
    if life.gone is None:
        raise life.problem or OSError(f"{life.node.name}: lost")
    return life.gone
