"""One attack, from what it refuses to its verdict."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from chaosspot import history as h
from chaosspot import schedule as schedules
from chaosspot import toml, trainers
from chaosspot.conductor import rundir
from chaosspot.conductor.backends import BACKENDS, Backend
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.judging import GUARDIAN_DIED, judge_run
from chaosspot.conductor.links import check_toxics, links_of
from chaosspot.conductor.observer import Observer, Silent
from chaosspot.conductor.rundir import LostError, RunError
from chaosspot.conductor.settled import refuse, settled
from chaosspot.conductor.stage import Stage
from chaosspot.conductor.undisturbed import find_twins
from chaosspot.schedule import Cloud, Schedule, StoreKind
from chaosspot.services.proxy.backend import answering, choose
from chaosspot.services.proxy.client import BackendError
from chaosspot.trainers import Trainer
from chaosspot.undo import Lease, heal_dead_runs, heal_lost_containers, state
from chaosspot.verdict import Verdict

__all__ = ["BACKENDS", "Attack", "UnsupportedError"]


class UnsupportedError(RuntimeError):
    """This machine cannot make one of the faults; nothing was started."""


class Attack:
    """One attack; its arguments and errors are those of :func:`chaosspot.conductor.attack`.

    What can be refused before anything runs is refused here.
    """

    def __init__(
        self,
        schedule: Schedule | str,
        *,
        name: str | None,
        trainer: Trainer | str,
        cluster: str,
        image: str | None,
        cloud: Cloud | None,
        store: StoreKind | None,
        proxy_backend: str,
        nodes: int | None,
        seed: int | None,
        steps: int | None,
        runs: Path | str,
        observer: Observer | None,
    ) -> None:
        self._backend = Backend(name=cluster, image=image)
        if isinstance(schedule, str):
            stem, schedule = schedules.load(schedule)
            name = name or stem
        self._name = name or "schedule"
        self._trainer = trainers.load(trainer) if isinstance(trainer, str) else trainer
        self._steps = steps if (final := self._trainer.final) is None else final.at_step
        self._runs = Path(runs)
        self._watcher: Observer = observer or Silent()
        self._plan = settled(schedule, cloud=cloud, store=store, nodes=nodes, seed=seed)
        try:
            self._proxies = choose(proxy_backend, os.environ)
        except BackendError as error:
            raise UnsupportedError(f"{self._name}: {error}") from error
        check_toxics(self._plan, own=self._proxies.real is None)
        refuse(self._name, self._plan, self._trainer, self._steps)
        if (lacking := self._backend.unsupported(self._plan, self._runs)) is not None:
            raise UnsupportedError(f"{self._name}: {lacking}")
        self._run: Path | None = None
        self._stuck: tuple[str, ...] = ()

    @property
    def interrupted(self) -> str:
        """What an attack that was told to stop comes to, for people."""
        if self._run is None:
            return "interrupted before anything was started"
        if self._stuck:
            what = "; ".join(self._stuck)
            return f"interrupted; what was recorded is kept in {self._run}, but NOT undone: {what}"
        return f"interrupted; everything is healed, what was recorded is kept in {self._run}"

    async def run(self) -> Verdict:
        """Run it and judge it; everything is healed when this returns or raises."""
        state.ready()
        for dead in heal_dead_runs():
            self._watcher.healed(dead)
        for dead in heal_lost_containers() if self._backend.isolates else ():
            self._watcher.healed(dead)
        if links_of(self._plan):
            try:
                await answering(self._proxies)
            except BackendError as error:
                raise UnsupportedError(f"{self._name}: {error}") from error
        run = self._run = rundir.create(self._runs, self._name, self._plan.seed or 0)
        rundir.write(run / "schedule.toml", toml.dumps(self._plan).encode())
        rundir.write(run / "trainer.toml", toml.dumps(self._trainer).encode())
        rundir.write_environment(run, self._backend.name, self._backend.image)
        self._watcher.started(run, self._plan, self._trainer)
        with h.Writer(run / "history.jsonl") as writer:
            feed = Feed(writer, self._watcher.record)
            lease = Lease.open(run)
            try:
                await self._play(run, lease, feed)
            except Exception as error:
                if lease.death() is None:
                    rundir.check_present(run, error)
                    raise
            finally:
                self._close(lease, feed)
        shutil.rmtree(run / "nodes", ignore_errors=True)
        try:
            verdict = judge_run(run)
        except RunError as error:  # its files were written a moment ago
            raise LostError(str(error)) from error
        if verdict.passed:  # a trainer's checkpoints are evidence only of what went wrong
            shutil.rmtree(run / "store", ignore_errors=True)
        return verdict

    async def _play(self, run: Path, lease: Lease, feed: Feed) -> None:
        stage = Stage(
            folder=run,
            schedule=self._plan,
            name=self._name,
            trainer=self._trainer,
            seed=self._plan.seed or 0,
            steps=self._steps,
            lease=lease,
            feed=feed,
            proxies=self._proxies,
            backend=self._backend,
        )
        try:
            await stage.play()
        finally:
            rundir.write(run / "schedule.toml", toml.dumps(stage.resolved()).encode())
        await find_twins(run, self._plan, self._trainer, lease, self._watcher, self._backend)

    def _close(self, lease: Lease, feed: Feed) -> None:
        """Undo what is left, and record it: as a leak, unless the guardian's death explains it."""
        left = lease.close()
        self._stuck = lease.stuck
        if (death := lease.death()) is None:
            for leak in left:
                feed.note(h.Leak, what=leak)
            return
        healed = f"NOT undone: {'; '.join(lease.stuck)}" if lease.stuck else "everything is healed"
        text = f"{death}; the run was stopped and healed itself: {healed}"
        feed.note(h.RunStop, reason=GUARDIAN_DIED, log=text)
