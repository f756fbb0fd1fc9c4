"""The nodes of one run: started, watched, replaced."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

import anyio
import anyio.abc
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot import schedule as s
from chaosspot import trainers
from chaosspot.cluster import Cluster, Launch
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.points import Points
from chaosspot.services.metadata import Instance, MetadataService
from chaosspot.trainers import Trainer

__all__ = ["Fleet", "StartError", "free_loopback_address", "last_lines"]


class StartError(RuntimeError):
    """A trainer's command cannot be started at all."""


class Fleet:
    """Puts a trainer on the nodes of a cluster, in ``folder``."""

    def __init__(
        self,
        *,
        folder: Path,
        trainer: Trainer,
        steps: int | None,
        address: str,
        cluster: Cluster,
        metadata: MetadataService,
        points: Points,
        feed: Feed,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self.cluster = cluster
        self.metadata = metadata
        self._folder = folder
        self._trainer = trainer
        self._address = address
        self._points = points
        self._feed = feed
        self._tasks = tasks
        self._values = trainers.values(
            coordinator=address, steps=1_000_000_000 if steps is None else steps
        )
        self._named = 0
        self._world = 0  # ranks at the start
        self._live: set[str] = set()
        self._replace_after_s: dict[str, float] = {}
        self._replaced: set[str] = set()

    async def start(self, nodes: Iterable[s.Node]) -> None:
        """Bring up the coordinator, if the trainer has one, and then all ``nodes`` at once.

        Raises:
            StartError: a command cannot be started, or the coordinator does not listen.
        """
        listed = list(nodes)
        self._world = len(listed) * self._trainer.ranks_per_node
        if self._trainer.coordinator is not None:
            await self._start(s.COORDINATOR, self._trainer.coordinator.command)
            await self._listening()
        async with anyio.create_task_group() as starting:
            for node in listed:
                self._named += 1
                starting.start_soon(self._start, node, self._trainer.command)

    def replace(self, names: Iterable[str], after_s: float) -> None:
        """Let a new node come ``after_s`` seconds after each of these is gone."""
        self._replace_after_s.update(dict.fromkeys(names, after_s))

    @property
    def capacity_coming(self) -> bool:
        """Whether a replacement is still to come."""
        return bool(set(self._replace_after_s) - self._replaced)

    @property
    def workers_alive(self) -> bool:
        """Whether any worker was started whose end is not recorded yet."""
        return bool(self._live)

    async def _start(
        self, node: s.Node, command: tuple[str, ...], replaces: str | None = None
    ) -> None:
        environment = self._environment(node)
        ranks = 1
        if node.role == "worker":
            ranks = self._trainer.ranks_per_node
            await self.metadata.add(
                Instance(node=node.name, zone=node.zone, family=node.family, pool=node.pool)
            )
            environment.update(self.metadata.environment(node.name))
        launch = Launch(
            argv=self._trainer.argv(command, self._values),
            environments=tuple(
                {**environment, "CHAOSSPOT_RANK": str(rank)} for rank in range(ranks)
            ),
            log=self._log(node.name),
        )
        try:
            await self.cluster.start(node, launch)
        except OSError as error:
            raise StartError(f"{node.name} cannot start {launch.argv[0]!r}: {error}") from error
        self._feed.note(
            h.NodeUp,
            node=node.name,
            zone=node.zone,
            family=node.family,
            pool=node.pool,
            role=node.role,
            replaces=replaces,
        )
        if node.role == "worker":
            self._live.add(node.name)
        self._tasks.start_soon(self._watch, node, command)

    async def _watch(self, node: s.Node, command: tuple[str, ...]) -> None:
        """Record a node's end, and bring its replacement if a fault asked for one."""
        gone = await self.cluster.gone(node.name)
        self._feed.note(
            h.NodeGone, node=node.name, t=gone.t, by_itself=gone.by_itself, code=gone.code
        )
        self._live.discard(node.name)
        if node.role == "worker":
            await self.metadata.remove(node.name)
        after_s = self._replace_after_s.get(node.name)
        if after_s is not None:
            await anyio.sleep(after_s)
            fresh = replace(node, name=f"node-{self._named}")
            self._named += 1
            await self._start(fresh, command, replaces=node.name)
            self._replaced.add(node.name)

    def _environment(self, node: s.Node) -> dict[str, str]:
        return {
            **self._trainer.surroundings(self._values),
            "CHAOSSPOT_NODE": node.name,
            "CHAOSSPOT_INCARNATION": "0",
            "CHAOSSPOT_ZONE": node.zone,
            "CHAOSSPOT_FAMILY": node.family,
            "CHAOSSPOT_POOL": node.pool,
            "CHAOSSPOT_FLASH": str(self.cluster.flash(node.name)),
            "CHAOSSPOT_STORE": str(self._folder / "store"),
            "CHAOSSPOT_COORDINATOR": self._address,
            "CHAOSSPOT_WORLD": str(self._world),
            "CHAOSSPOT_EVENTS": str(self._folder / "events"),
            "CHAOSSPOT_POINTS": str(self._points.armed),
            "CHAOSSPOT_CONTROL": str(self._points.socket),
        }

    async def _listening(self) -> None:
        """Wait until the coordinator accepts connections, or is gone."""
        host, port = self._address.split(":")
        with anyio.move_on_after(self._trainer.timeouts.start_s):
            while any(node.role == "coordinator" for node in self.cluster.alive()):
                try:
                    stream = await anyio.connect_tcp(host, int(port))
                except OSError:
                    await anyio.sleep(0.02)  # nothing tells when a port begins to listen
                else:
                    await stream.aclose()
                    return
        log = self._log(s.COORDINATOR.name)
        raise StartError(
            f"the coordinator does not listen at {self._address}; "
            f"the last lines of {log}:\n{last_lines(log)}"
        )

    def _log(self, node: str) -> Path:
        return self._folder / "logs" / f"{node}.log"


def free_loopback_address(seed: str) -> str:
    """``HOST:PORT`` that nothing listens at, on a loopback address of this run's own."""
    digits = [int(s.draw(0, seed, part) * 250) + 1 for part in range(3)]
    host = f"127.{64 + digits[0] % 64}.{digits[1]}.{digits[2]}"
    with socket.socket() as listener:
        listener.bind((host, 0))
        return f"{host}:{listener.getsockname()[1]}"


def last_lines(log: Path, count: int = 20) -> str:
    """The end of a log file, for an error that must show its evidence."""
    try:
        return os.linesep.join(log.read_text(errors="replace").splitlines()[-count:]) or "(empty)"
    except OSError as error:
        return f"({error.strerror})"
