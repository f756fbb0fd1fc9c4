"""One live run: nodes up, faults as scheduled, everything recorded, everything down again."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot import schedule as s
from chaosspot.cluster import Cluster
from chaosspot.conductor.backends import Backend
from chaosspot.conductor.decided import decided, ready_t
from chaosspot.conductor.doors import Doors
from chaosspot.conductor.ending import GOOD_ENDS, end_of_all, failed_node
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.fleet import Fleet, StartError, last_lines
from chaosspot.conductor.links import Links, links_of
from chaosspot.conductor.points import Points
from chaosspot.conductor.rundir import check_present
from chaosspot.conductor.storage import Storage
from chaosspot.conductor.tail import Tail
from chaosspot.conductor.world import FaultWorld
from chaosspot.inject import inject
from chaosspot.oracles import Evidence
from chaosspot.services.metadata import MetadataService
from chaosspot.services.proxy.backend import Choice
from chaosspot.trainers import Trainer
from chaosspot.undo import Directory, Lease

__all__ = ["Stage", "StartError"]

_JUDGE_S = 0.5  # how often the whole history is looked at; what happened is seen at once
_TAIL_S = 0.05  # how often events files are read; they may lie on a remote file system


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
        proxies: Choice | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._folder = folder
        self._schedule = schedule
        self._name = name
        self._trainer = trainer
        self._seed = seed
        self._steps = steps
        self._lease = lease
        self._feed = feed
        self._proxies = proxies or Choice()
        self._backend = backend or Backend()
        self._delays_s = [s.delay(fault, index, seed) for index, fault in enumerate(schedule.fault)]
        self._waiting = set(range(len(schedule.fault)))  # faults whose trigger has not come
        self._unhealed = set(self._waiting)  # faults that are not over
        self._going: set[str] = set()  # nodes that a fault takes, but has not yet

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
        try:
            async with (
                self._control() as points,
                self._metadata() as metadata,
                self._object_store() as storage,
                self._proxied() as links,
                Doors.open() as doors,
                self._cluster(points) as cluster,
                anyio.create_task_group() as tasks,
            ):
                await tasks.start(points.serve)
                tasks.start_soon(self._read, tail)
                tasks.start_soon(self._heed_guardian)
                tasks.start_soon(self._heed_cluster, cluster)
                self._points = points
                self._storage = storage
                self._fleet = Fleet(
                    folder=self._folder,
                    trainer=self._trainer,
                    steps=self._steps,
                    address=cluster.coordinator_address(self._lease.id),
                    doors=doors,
                    cluster=cluster,
                    metadata=metadata,
                    storage=storage,
                    links=links,
                    points=points,
                    feed=feed,
                    tasks=tasks,
                )
                await self._fleet.start(self._schedule.cluster.nodes())
                for index, fault in enumerate(self._schedule.fault):
                    tasks.start_soon(self._fault, index, fault)
                reason = await self._until_done()
                feed.note(h.RunStop, reason=reason, log=self._last_words(reason))
                tasks.cancel_scope.cancel()
        except BaseException as error:  # noqa: BLE001 - recorded, and raised again
            cause = _cause(error)
            failed = isinstance(cause, Exception)
            feed.note(h.RunStop, reason="failed" if failed else "interrupted")
            raise cause from None
        finally:
            for record in tail.poll():
                feed.add(record)
            tail.close()
            for index in sorted(self._waiting):
                self._miss(index, "its trigger never came")

    def resolved(self) -> s.Schedule:
        """The schedule with what this run made of each fault."""
        ready = ready_t(self._evidence(), self._workers) or 0.0
        acted = {
            r.fault: r
            for r in self._feed.records
            if isinstance(r, h.FaultInjected) or (isinstance(r, h.FaultMissed) and r.drawn)
        }
        faults = tuple(
            replace(
                fault,
                resolved=s.Resolved(
                    nodes=then.nodes if isinstance(then, h.FaultInjected) else (),
                    delay_s=self._delays_s[index],
                    injected_s=round(then.t - ready, 3),
                    step=then.step if isinstance(then, h.FaultInjected) else 0,
                ),
            )
            if (then := acted.get(index)) is not None
            else fault
            for index, fault in enumerate(self._schedule.fault)
        )
        return replace(self._schedule, seed=self._seed, fault=faults)

    @property
    def _workers(self) -> int:
        return len(self._schedule.cluster.nodes())

    @asynccontextmanager
    async def _control(self) -> AsyncIterator[Points]:
        """Points and their socket, in a folder whose path is short enough for one."""
        folder = Path(tempfile.gettempdir()) / f"chaosspot-{secrets.token_hex(6)}"
        token = self._lease.promise(Directory(path=str(folder), within=str(folder.parent)))
        folder.mkdir(mode=0o700)
        try:
            yield Points(folder)
        finally:
            shutil.rmtree(folder)
            self._lease.kept(token)

    def _cluster(self, points: Points) -> Cluster:
        return self._backend.cluster(
            run=self._folder,
            lease=self._lease,
            shares=(self._folder / "events", self._folder / "store"),
            reads=(points.folder, *self._trainer.reads()),
        )

    @asynccontextmanager
    async def _metadata(self) -> AsyncIterator[MetadataService]:
        """The metadata service, which closes its listeners even when the run is cancelled."""
        cloud = self._schedule.cluster.cloud
        service = await MetadataService(provider=cloud, run=self._lease.id).__aenter__()
        try:
            yield service
        finally:
            with anyio.CancelScope(shield=True):
                await service.__aexit__(None, None, None)

    @asynccontextmanager
    async def _object_store(self) -> AsyncIterator[Storage | None]:
        """The object store, for a cluster that has one."""
        if self._schedule.cluster.store == "directory":
            yield None
            return
        async with Storage.serving(self._feed) as storage:
            yield storage

    @asynccontextmanager
    async def _proxied(self) -> AsyncIterator[Links]:
        """The nodes' links, through proxies where a fault of the schedule impairs them."""
        log = self._folder / "logs" / "proxy.log"
        async with Links.serving(
            links_of(self._schedule),
            choice=self._proxies,
            seed=self._seed,
            log=log,
            lease=self._lease,
            feed=self._feed,
        ) as links:
            yield links

    async def _heed_guardian(self) -> None:
        """End the run when its guardian dies: nothing that it did would be undone for certain."""
        while (death := self._lease.death()) is None:
            await anyio.wait_readable(self._lease.control)
        raise OSError(death)

    async def _heed_cluster(self, cluster: Cluster) -> None:
        """End the run when nothing can be done to its nodes any more."""
        raise OSError(await cluster.lost())

    # Faults.

    async def _fault(self, index: int, fault: s.FaultKind) -> None:
        """Wait for a fault's trigger and let it act."""
        on = fault.on
        if on.point is not None:
            async with self._points.hold(on.point, on.nth) as held:
                await self._act(index, fault, held.node, held.release)
            return
        puller = ""
        if on.event is not None:
            puller = (await self._feed.nth(_is(on.event), on.nth)).node
        elif on.at_step is not None:
            step = on.at_step
            await self._feed.nth(lambda r: isinstance(r, h.Commit) and r.step >= step)
        else:
            await self._feed.until(self._all_committed)
            await anyio.sleep(on.at_s or 0.0)
        await anyio.sleep(self._delays_s[index])
        await self._act(index, fault, puller)

    async def _act(
        self,
        index: int,
        fault: s.FaultKind,
        puller: str,
        in_force: Callable[[], None] = lambda: None,
    ) -> None:
        self._waiting.discard(index)
        live = self._fleet.cluster.alive()
        of_none = isinstance(fault, s.Grow | s.ObjectStore)
        names = [] if of_none else s.choose(fault, index, self._seed, live, puller, self._going)
        if not names and not of_none:
            drawn = fault.drawn and any(map(fault.may_hit, live))
            reason = "its draw took no node" if drawn else "no live node matches its target"
            self._miss(index, reason, drawn=drawn)
            return
        if fault.TAKES_NODES:
            self._fleet.expect_loss(names, fault)
        self._feed.note(
            h.FaultInjected,
            fault=index,
            kind=type(fault).kind,
            nodes=tuple(names),
            step=self._feed.highest_step,
        )
        self._going |= set(names) if fault.takes else set()
        await inject(
            fault, names, FaultWorld(self._fleet, self._storage, self._feed, index, in_force)
        )
        self._going -= set(names)
        self._feed.note(h.FaultHealed, fault=index)
        self._unhealed.discard(index)

    def _miss(self, index: int, reason: str, *, drawn: bool = False) -> None:
        self._feed.note(h.FaultMissed, fault=index, reason=reason, drawn=drawn)
        self._unhealed.discard(index)

    # Waiting.

    def _all_committed(self) -> bool:
        """Whether as many nodes have committed as were there at the start."""
        return len(self._feed.committed) >= self._workers

    async def _read(self, tail: Tail) -> None:
        while True:
            for record in tail.poll():
                self._feed.add(record)
            await anyio.sleep(_TAIL_S)

    async def _until_done(self) -> str:
        """Wait for the end and say why it came."""
        limits = self._trainer.timeouts
        settle_steps = 2 * (self._trainer.promises.snapshot_every_steps or 5)
        start_t = last_commit_t = judged_t = time.monotonic()
        highest = 0
        while True:
            await self._feed.change(within_s=0.25)
            check_present(self._folder)
            now = time.monotonic()
            if self._feed.highest_step > highest:
                highest, last_commit_t = self._feed.highest_step, now
            to_end = self._trainer.final is not None  # all is looked at when it has ended by itself
            if self._steps is not None and highest >= self._steps and not to_end:
                return "steps"
            if not self._fleet.workers_alive and not self._capacity_coming():
                return end_of_all(self._feed.records)
            if not to_end and not self._unhealed and now - judged_t > _JUDGE_S:
                judged_t = now
                if decided(self._evidence(), now=now, settle_steps=settle_steps):
                    return "decided"
            if not self._all_committed() and len(self._waiting) == len(self._schedule.fault):
                if now - start_t > limits.start_s:
                    return "start timeout"
            elif now - last_commit_t > limits.stall_s and not self._capacity_coming():
                return "stall timeout"
            if now - start_t > limits.run_s:
                return "run timeout"

    def _capacity_coming(self) -> bool:
        """Whether a replacement is still to come, or nodes of a growth that only takes time."""
        grows = any(
            isinstance(fault := self._schedule.fault[index], s.Grow)
            and (index not in self._waiting or fault.on.at_s is not None)
            for index in self._unhealed
        )
        return self._fleet.capacity_coming or (grows and self._all_committed())

    def _last_words(self, reason: str) -> str:
        """Where a run ended badly: the last lines of the log that says most about it."""
        if reason in GOOD_ENDS:
            return ""
        node = failed_node(self._feed.records) or self._schedule.cluster.nodes()[0].name
        return f"{node}: " + last_lines(self._folder / "logs" / f"{node}.log")

    def _evidence(self) -> Evidence:
        return Evidence(
            history=h.ordered(self._feed.records), schedule=self._schedule, trainer=self._trainer
        )


def _cause(error: BaseException) -> BaseException:
    """The one error that made a task group fail: what others it cancelled says nothing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _is(event: str) -> Callable[[h.Record], bool]:
    """Whether a record is the named event, with a snapshot's stage after a dot."""

    def matches(record: h.Record) -> bool:
        name = record.name if isinstance(record, h.Other) else record.event
        stage = getattr(record, "stage", None)
        return event in (name, f"{name}.{stage}")

    return matches
