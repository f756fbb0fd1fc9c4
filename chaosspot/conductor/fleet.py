"""The nodes of one run: started, watched, replaced."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.to_thread
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot import schedule as s
from chaosspot import trainers
from chaosspot.cluster import Cluster, Launch, Network
from chaosspot.conductor.doors import METADATA, Doors
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.links import Links
from chaosspot.conductor.points import Points
from chaosspot.conductor.storage import Storage
from chaosspot.schedule import Fault, Kill
from chaosspot.services.metadata import Instance, MetadataService
from chaosspot.trainers import Trainer

__all__ = ["Fleet", "StartError", "last_lines"]

_LAST_BYTES = 1 << 16  # logs may be huge


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
        doors: Doors,
        cluster: Cluster,
        metadata: MetadataService,
        storage: Storage | None,
        links: Links,
        points: Points,
        feed: Feed,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self.cluster = cluster
        self.metadata = metadata
        self.links = links
        self._storage = storage
        self._folder = folder
        self._trainer = trainer
        self._address = address
        self._doors = doors
        self._coordinator: Network | None = None  # where the coordinator listens, if not here
        self._coordinator_here = ""  # the way to it from here, once there is one
        self._points = points
        self._feed = feed
        self._tasks = tasks
        self._steps = 1_000_000_000 if steps is None else steps
        self._named = 0
        self._world = 0  # ranks at the start
        self._live: set[str] = set()
        self._replacements: dict[str, Fault] = {}  # by the node they come for
        self._coming: set[str] = set()  # nodes that are gone and will be replaced
        self._incarnations: dict[str, int] = {}

    async def start(self, nodes: Iterable[s.Node]) -> None:
        """Bring up the coordinator, if the trainer has one, and then all ``nodes`` at once.

        Raises:
            StartError: a command cannot be started, or the coordinator does not listen.
        """
        listed = list(nodes)
        self._first = listed[0]
        kind = (self._first.family, self._first.pool)
        self._zones = list(dict.fromkeys(n.zone for n in listed if (n.family, n.pool) == kind))
        self._world = len(listed) * self._trainer.ranks_per_node
        if self._trainer.coordinator is not None:
            await self._start(s.COORDINATOR, self._trainer.coordinator.command)
            await self._listening()
        async with anyio.create_task_group() as starting:
            for node in listed:
                self._named += 1
                starting.start_soon(self._start, node, self._trainer.command)

    def expect_loss(self, names: Iterable[str], fault: Fault) -> None:
        """``fault`` takes these: none is restarted, and replacements come as it says."""
        self._replacements.update(dict.fromkeys(names, fault))

    async def grow(self, count: int) -> list[str]:
        """Start more nodes like the first, where its kind has the fewest; returns their names."""
        fresh: list[s.Node] = []
        for _ in range(count):
            there = [node.zone for node in (*self.cluster.alive(), *fresh)]
            zone = min(self._zones, key=there.count)  # of several, the first
            fresh.append(self._next(replace(self._first, zone=zone)))
        async with anyio.create_task_group() as starting:
            for node in fresh:
                starting.start_soon(self._start, node, self._trainer.command)
        return [node.name for node in fresh]

    @property
    def capacity_coming(self) -> bool:
        """Whether a replacement is still to come."""
        return bool(self._coming)

    @property
    def workers_alive(self) -> bool:
        """Whether any worker was started whose end is not recorded yet."""
        return bool(self._live)

    async def _start(
        self,
        node: s.Node,
        command: tuple[str, ...],
        *,
        replaces: str | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Bring a node up and, ``delay_s`` later, start its trainer."""
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
            await self.metadata.add(
                Instance(node=node.name, zone=node.zone, family=node.family, pool=node.pool)
            )
        await anyio.sleep(delay_s)
        await self._launch(node, command)

    async def _launch(self, node: s.Node, command: tuple[str, ...]) -> None:
        place = await self.cluster.boot(node, log=self._log(node.name))
        network = place.network
        coordinator = self._address
        ranks = 1
        if node.role == "worker":
            ranks = self._trainer.ranks_per_node
            coordinator = await self._way_to_coordinator(node.name, network)
        else:
            self._coordinator = network
        values = trainers.values(coordinator=coordinator, steps=self._steps, python=place.python)
        environment = self._environment(node, values)
        if node.role == "worker":
            environment.update(await self._services(node.name, network))
        launch = Launch(
            argv=self._trainer.argv(command, values),
            environments=tuple(
                {**environment, "CHAOSSPOT_RANK": str(rank)} for rank in range(ranks)
            ),
            log=self._log(node.name),
            keep_flash=self._trainer.restarts > 0,
        )
        try:
            await self.cluster.start(node, launch)
        except OSError as error:
            said = error.strerror or ""
            if error.errno == errno.EOWNERDEAD or not said.startswith(node.name):
                raise  # its supervisor died, or the disk is full: the command is not to blame
            raise StartError(said) from error
        self._tasks.start_soon(self._watch, node, command)

    async def _watch(self, node: s.Node, command: tuple[str, ...]) -> None:
        """Record a node's end, and bring its next life or its replacement."""
        gone = await self.cluster.gone(node.name)
        await self._doors.shut(node.name)
        fault = self._replacements.pop(node.name, None)
        life = self._incarnations.get(node.name, 0)
        if fault is None and gone.by_itself and gone.code and life < self._trainer.restarts:
            self._feed.note(h.NodeRestart, node=node.name, t=gone.t, code=gone.code)
            self._incarnations[node.name] = life + 1
            await self._launch(node, command)
            return
        self._feed.note(
            h.NodeGone, node=node.name, t=gone.t, by_itself=gone.by_itself, code=gone.code
        )
        self._live.discard(node.name)
        after_s = fault.replace_after_s if fault is not None else None
        if after_s is not None:
            self._coming.add(node.name)
        if node.role == "worker":
            await self.metadata.remove(node.name)
        if fault is not None and after_s is not None:
            await anyio.sleep(after_s)
            if isinstance(fault, Kill) and fault.keep_flash:
                self._incarnations[node.name] = life + 1
                fresh = node
            else:
                fresh = self._next(node)
            delay_s = fault.start_delay_s
            await self._start(fresh, command, replaces=node.name, delay_s=delay_s)
            self._coming.discard(node.name)

    def _next(self, like: s.Node) -> s.Node:
        """A node of the same kind under a name that nobody had."""
        self._named += 1
        number = self._named - 1
        name = f"node-{number}" if like.role == "worker" else f"{like.role}-{number}"
        return replace(like, name=name)

    async def _way_to_coordinator(self, node: str, network: Network | None) -> str:
        """HOST:PORT by which that node reaches the coordinator."""
        if network is None:
            return await self.links.lay(node, "coordinator", self._address)
        if not self.links.impairs("coordinator"):
            return self._address
        at = await self.links.lay(node, "coordinator", self._coordinator_here)
        return await self._doors.lead(node, network, at)

    async def _services(self, node: str, network: Network | None) -> dict[str, str]:
        """What leads a worker to the services that stand in for the cloud.

        With a network of its own it has the metadata service where the cloud has it.
        """
        at = urlsplit(self.metadata.endpoint(node)).netloc
        if network is None or self.links.impairs("metadata"):
            at = await self.links.lay(node, "metadata", at)
        if network is not None:
            if self.links.impairs("metadata"):
                await self._doors.lead(node, network, at, host=METADATA, port=80)
            else:
                await self.metadata.move(node, host=METADATA, port=80, bind=network.bind)
            at = METADATA
        found = self.metadata.environment(node, at)
        if self._storage is not None:
            at = await self.links.lay(node, "store", self._storage.address)
            at = await self._doors.lead(node, network, at)
            found |= self._storage.environment(node, at)
            found["CHAOSSPOT_STORE"] = self._storage.place
        return found

    def _environment(self, node: s.Node, values: Mapping[str, str]) -> dict[str, str]:
        return {
            **self._trainer.surroundings(values),
            "CHAOSSPOT_NODE": node.name,
            "CHAOSSPOT_INCARNATION": str(self._incarnations.get(node.name, 0)),
            "CHAOSSPOT_ZONE": node.zone,
            "CHAOSSPOT_FAMILY": node.family,
            "CHAOSSPOT_POOL": node.pool,
            "CHAOSSPOT_FLASH": str(self.cluster.flash(node.name)),
            "CHAOSSPOT_STORE": str(self._folder / "store"),
            "CHAOSSPOT_COORDINATOR": values["coordinator"],
            "CHAOSSPOT_WORLD": str(self._world),
            "CHAOSSPOT_EVENTS": str(self._folder / "events"),
            "CHAOSSPOT_POINTS": str(self._points.armed),
            "CHAOSSPOT_CONTROL": str(self._points.socket),
        }

    async def _listening(self) -> None:
        """Wait until the coordinator accepts connections, or is gone."""
        host, port = self._address.split(":")
        if self._coordinator is not None and self.links.impairs("coordinator"):
            at = await self._doors.back(lambda: self._coordinator, int(port))
            self._coordinator_here = at
        with anyio.move_on_after(self._trainer.timeouts.start_s):
            while any(node.role == "coordinator" for node in self.cluster.alive()):
                if await self._listens(host, int(port)):
                    return
                await anyio.sleep(0.02)  # nothing tells when a port begins to listen
        log = self._log(s.COORDINATOR.name)
        raise StartError(
            f"the coordinator does not listen at {self._address}; "
            f"the last lines of {log}:\n{last_lines(log)}"
        )

    async def _listens(self, host: str, port: int) -> bool:
        if self._coordinator is not None:
            return await anyio.to_thread.run_sync(self._coordinator.listens, port)
        try:
            stream = await anyio.connect_tcp(host, port)
        except OSError:
            return False
        await stream.aclose()
        return True

    def _log(self, node: str) -> Path:
        return self._folder / "logs" / f"{node}.log"


def last_lines(log: Path, count: int = 20) -> str:
    """The end of a log file, for an error that must show its evidence."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"({error.strerror})"
    return os.linesep.join(text.splitlines()[-count:]) or "(empty)"
