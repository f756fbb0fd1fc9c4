"""One live run: nodes up, faults as scheduled, everything recorded, everything down again."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import anyio.abc
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot import schedule as s
from chaosspot import trainers
from chaosspot.cluster import Cluster, Launch
from chaosspot.cluster.processes import ProcessCluster
from chaosspot.conductor.decided import decided, ready_t
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.points import Points
from chaosspot.conductor.tail import Tail
from chaosspot.inject import inject
from chaosspot.oracles import Evidence
from chaosspot.services.metadata import Instance, MetadataService
from chaosspot.trainers import Trainer
from chaosspot.undo import Directory, Lease

__all__ = ["Stage", "StartError"]

_TAIL_S = 0.05  # how often events files are read; they may lie on a remote file system


class StartError(RuntimeError):
    """A trainer's command cannot be started at all."""


class Stage:
    """Plays one schedule with one trainer in ``folder``; see :meth:`play`."""

    def __init__(
        self,
        *,
        folder: Path,
        schedule: s.Schedule,
        name: str,
        trainer: Trainer,
        seed: int,
        steps: int | None,
        lease: Lease,
        feed: Feed,
    ) -> None:
        self._folder = folder
        self._schedule = schedule
        self._name = name
        self._trainer = trainer
        self._seed = seed
        self._steps = steps
        self._lease = lease
        self._feed = feed
        self._replace_after_s: dict[str, float] = {}
        self._delays_s: dict[int, float] = {}
        self._nodes = 0
        self._values: dict[str, str] = {}

    async def play(self) -> None:
        """Run until everything is decided, a limit is reached or training ends; never hangs.

        Raises:
            StartError: the trainer's command cannot be started.
        """
        feed = self._feed
        for folder in ("events", "logs", "store"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        tail = Tail(
            events=self._folder / "events",
            logs=self._folder / "logs",
            patterns=self._trainer.patterns,
        )
        feed.note(h.RunStart, schedule=self._name, trainer=self._trainer.name, seed=self._seed)
        reason = "interrupted"
        try:
            async with (
                self._control() as points,
                MetadataService() as metadata,
                ProcessCluster(run=self._folder, lease=self._lease) as cluster,
                anyio.create_task_group() as tasks,
            ):
                self._points, self.metadata, self.cluster, self._tasks = (
                    points,
                    metadata,
                    cluster,
                    tasks,
                )
                await tasks.start(points.serve)
                tasks.start_soon(self._read, tail)
                await self._start_all()
                for index, fault in enumerate(self._schedule.fault):
                    tasks.start_soon(self._fault, index, fault)
                reason = await self._until_done()
                feed.note(h.RunStop, reason=reason, log=self._explanation(reason))
                tasks.cancel_scope.cancel()
        finally:
            for record in tail.poll():
                feed.add(record)
            tail.close()
            if reason == "interrupted":
                feed.note(h.RunStop, reason=reason)
            self._report_missed()

    def resolved(self) -> s.Schedule:
        """The schedule with what this run made of each fault."""
        ready = ready_t(self._evidence(), self._workers) or 0.0
        injected = {r.fault: r for r in self._feed.records if isinstance(r, h.FaultInjected)}
        faults = tuple(
            replace(
                fault,
                resolved=s.Resolved(
                    nodes=injected[index].nodes,
                    delay_s=self._delays_s[index],
                    injected_s=round(injected[index].t - ready, 3),
                    step=injected[index].step,
                ),
            )
            if index in injected
            else fault
            for index, fault in enumerate(self._schedule.fault)
        )
        return replace(self._schedule, seed=self._seed, fault=faults)

    # What injectors see of a run (inject.World).

    cluster: Cluster
    metadata: MetadataService

    @property
    def _workers(self) -> int:
        return len(self._schedule.cluster.nodes())

    @asynccontextmanager
    async def _control(self) -> AsyncIterator[Points]:
        """Points and their socket, in a folder whose path is short enough for one."""
        folder = Path(tempfile.mkdtemp(prefix="chaosspot-"))
        token = self._lease.promise(Directory(path=str(folder), within=str(folder.parent)))
        try:
            yield Points(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._lease.kept(token)

    # Nodes.

    async def _start_all(self) -> None:
        address = _free_loopback_address(self._lease.id)
        steps = self._steps if self._steps is not None else 1_000_000_000
        self._values = trainers.values(coordinator=address, steps=steps)
        if self._trainer.coordinator is not None:
            await self._start(s.COORDINATOR, self._trainer.coordinator.command)
            await self._listening(address)
        async with anyio.create_task_group() as starting:
            for node in self._schedule.cluster.nodes():
                self._nodes += 1
                starting.start_soon(self._start, node, self._trainer.command)

    async def _start(
        self, node: s.Node, command: tuple[str, ...], replaces: str | None = None
    ) -> None:
        environment = {
            **self._trainer.surroundings(self._values),
            "CHAOSSPOT_NODE": node.name,
            "CHAOSSPOT_INCARNATION": "0",
            "CHAOSSPOT_ZONE": node.zone,
            "CHAOSSPOT_FAMILY": node.family,
            "CHAOSSPOT_POOL": node.pool,
            "CHAOSSPOT_FLASH": str(self.cluster.flash(node.name)),
            "CHAOSSPOT_STORE": str(self._folder / "store"),
            "CHAOSSPOT_COORDINATOR": self._values["coordinator"],
            "CHAOSSPOT_EVENTS": str(self._folder / "events"),
            "CHAOSSPOT_POINTS": str(self._points.armed),
            "CHAOSSPOT_CONTROL": str(self._points.socket),
        }
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
            log=self._folder / "logs" / f"{node.name}.log",
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
        self._tasks.start_soon(self._watch, node, command)

    async def _watch(self, node: s.Node, command: tuple[str, ...]) -> None:
        """Record a node's end and bring its replacement if a fault asked for one."""
        gone = await self.cluster.gone(node.name)
        self._feed.note(
            h.NodeGone, node=node.name, t=gone.t, by_itself=gone.by_itself, code=gone.code
        )
        if node.role == "worker":
            await self.metadata.remove(node.name)
        after_s = self._replace_after_s.get(node.name)
        if after_s is not None:
            await anyio.sleep(after_s)
            fresh = replace(node, name=f"node-{self._nodes}")
            self._nodes += 1
            await self._start(fresh, command, replaces=node.name)

    async def _listening(self, address: str) -> None:
        """Wait until the coordinator accepts connections, or is gone."""
        host, port = address.split(":")
        with anyio.move_on_after(self._trainer.timeouts.start_s):
            while any(node.role == "coordinator" for node in self.cluster.alive()):
                try:
                    stream = await anyio.connect_tcp(host, int(port))
                except OSError:
                    await anyio.sleep(0.02)  # nothing tells when a port begins to listen
                else:
                    await stream.aclose()
                    return
        log = self._folder / "logs" / f"{s.COORDINATOR.name}.log"
        raise StartError(
            f"the coordinator does not listen at {address}; last lines of {log}:\n{_last(log)}"
        )

    # Faults.

    async def _fault(self, index: int, fault: s.FaultKind) -> None:
        self._delays_s[index] = s.delay(fault, index, self._seed)
        on = fault.on
        if on.point is not None:
            async with self._points.hold(on.point, on.nth) as node:
                await self._act(index, fault, node)
            return
        puller = ""
        if on.event is not None:
            puller = (await self._feed.nth(_is(on.event), on.nth)).node
        elif on.at_step is not None:
            step = on.at_step
            await self._feed.nth(lambda r: isinstance(r, h.Commit) and r.step >= step)
        else:
            await self._ready()
            await anyio.sleep(on.at_s or 0.0)
        await anyio.sleep(self._delays_s[index])
        await self._act(index, fault, puller)

    async def _act(self, index: int, fault: s.FaultKind, puller: str) -> None:
        names = s.choose(fault, index, self._seed, self.cluster.alive(), puller)
        if not names:
            self._feed.note(h.FaultMissed, fault=index, reason="no live node matches its target")
            return
        if fault.replace_after_s is not None:
            self._replace_after_s.update(dict.fromkeys(names, fault.replace_after_s))
        self._feed.note(
            h.FaultInjected,
            fault=index,
            kind=type(fault).kind,
            nodes=tuple(names),
            step=self._feed.highest_step,
        )
        await inject(fault, names, _View(self, index))
        self._feed.note(h.FaultHealed, fault=index)

    def _report_missed(self) -> None:
        acted = {
            record.fault
            for record in self._feed.records
            if isinstance(record, h.FaultInjected | h.FaultMissed)
        }
        for index in range(len(self._schedule.fault)):
            if index not in acted:
                self._feed.note(h.FaultMissed, fault=index, reason="its trigger never came")

    # Waiting.

    async def _ready(self) -> None:
        seen: set[str] = set()

        def last_first_commit(record: h.Record) -> bool:
            if isinstance(record, h.Commit):
                seen.add(record.node)
            return len(seen) >= self._workers

        await self._feed.nth(last_first_commit)

    async def _read(self, tail: Tail) -> None:
        while True:
            for record in tail.poll():
                self._feed.add(record)
            await anyio.sleep(_TAIL_S)

    async def _until_done(self) -> str:
        """Wait for the end and say why it came."""
        limits = self._trainer.timeouts
        start_t = last_commit_t = time.monotonic()
        highest = 0
        while True:
            await self._feed.change(within_s=0.25)
            now = time.monotonic()
            if self._feed.highest_step > highest:
                highest, last_commit_t = self._feed.highest_step, now
            if self._steps is not None and highest >= self._steps:
                return "steps"
            if self._ended():
                return "exited" if self._failed_node() else "finished"
            evidence = self._evidence()
            settle = 2 * (self._trainer.promises.snapshot_every_steps or 5)
            if decided(evidence, now=now, settle_steps=settle):
                return "decided"
            begun = ready_t(evidence, self._workers) is not None or any(
                view.injected for view in evidence.faults
            )
            if not begun:
                if now - start_t > limits.start_s:
                    return "start timeout"
            elif now - last_commit_t > limits.stall_s and not self._capacity_coming():
                return "stall timeout"
            if now - start_t > limits.run_s:
                return "run timeout"

    def _ended(self) -> bool:
        """Whether no worker lives and none will come."""
        if any(node.role == "worker" for node in self.cluster.alive()):
            return False
        return not self._capacity_coming()

    def _failed_node(self) -> str:
        """The first worker that ended by itself with an exit code other than 0."""
        ends = (r for r in self._feed.records if isinstance(r, h.NodeGone))
        return next((r.node for r in ends if r.by_itself and r.code), "")

    def _explanation(self, reason: str) -> str:
        """Where a run ended badly: the last lines of the log that says most about it."""
        if reason in ("decided", "steps", "finished"):
            return ""
        node = self._failed_node() or self._schedule.cluster.nodes()[0].name
        return f"{node}: " + _last(self._folder / "logs" / f"{node}.log")

    def _capacity_coming(self) -> bool:
        ups = [r for r in self._feed.records if isinstance(r, h.NodeUp)]
        return bool(set(self._replace_after_s) - {up.replaces for up in ups})

    def _evidence(self) -> Evidence:
        return Evidence(
            history=h.ordered(self._feed.records), schedule=self._schedule, trainer=self._trainer
        )


class _View:
    """What one fault may touch, and the record of what it did (an ``inject.World``)."""

    def __init__(self, stage: Stage, fault: int) -> None:
        self.cluster = stage.cluster
        self.metadata = stage.metadata
        self._feed = stage._feed
        self._fault = fault

    def effect(
        self,
        node: str,
        what: Literal["gone", "published"],
        *,
        t: float | None = None,
        deadline_wall_s: float | None = None,
    ) -> None:
        self._feed.note(
            h.FaultEffect,
            node=node,
            t=t,
            fault=self._fault,
            what=what,
            deadline_wall_s=deadline_wall_s,
        )


def _is(event: str) -> Callable[[h.Record], bool]:
    """Whether a record is the named event, with a snapshot's stage after a dot."""

    def matches(record: h.Record) -> bool:
        name = record.name if isinstance(record, h.Other) else record.event
        stage = getattr(record, "stage", None)
        return event in (name, f"{name}.{stage}")

    return matches


def _free_loopback_address(seed: str) -> str:
    """``HOST:PORT`` that nothing listens at, on a loopback address of this run's own."""
    digits = [int(s.draw(0, seed, part) * 250) + 1 for part in range(3)]
    host = f"127.{64 + digits[0] % 64}.{digits[1]}.{digits[2]}"
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def _last(log: Path, lines: int = 20) -> str:
    try:
        return os.linesep.join(log.read_text(errors="replace").splitlines()[-lines:]) or "(empty)"
    except OSError as error:
        return f"({error.strerror})"
