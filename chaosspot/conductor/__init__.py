"""Runs one attack from start to verdict."""

from __future__ import annotations

import secrets
import shlex
import shutil
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot import schedule as schedules
from chaosspot import toml, trainers
from chaosspot.cluster.processes import unsupported
from chaosspot.conductor import rundir, twins
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.rundir import RunError, evidence_of
from chaosspot.conductor.stage import Stage, StartError
from chaosspot.oracles import Evidence, equality, judge
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import Expectation, Schedule
from chaosspot.trainers import Trainer
from chaosspot.undo import Healed, Lease, heal_dead_runs
from chaosspot.verdict import Outcome, Verdict

__all__ = [
    "BACKENDS",
    "Observer",
    "RunError",
    "StartError",
    "UnsupportedError",
    "attack",
    "attack_async",
    "judge_run",
]

BACKENDS = ("processes",)


class UnsupportedError(RuntimeError):
    """This machine cannot make one of the faults; nothing was started."""


class Observer(Protocol):
    """Who watches an attack; called on its event loop and must not block."""

    def healed(self, dead: Healed) -> None:
        """Something a dead run left behind was put right at the start."""

    def started(self, run: Path, schedule: Schedule, trainer: Trainer) -> None:
        """The run directory stands and the seed is chosen."""

    def record(self, record: h.Record) -> None:
        """Something was recorded, by the attacked run."""

    def twin(self, record: h.Record | None, steps: int) -> None:
        """The twin is being run to ``steps``; None when it starts."""


class _Silent:
    def healed(self, dead: Healed) -> None: ...
    def started(self, run: Path, schedule: Schedule, trainer: Trainer) -> None: ...
    def record(self, record: h.Record) -> None: ...
    def twin(self, record: h.Record | None, steps: int) -> None: ...


def attack(
    schedule: Schedule | str,
    *,
    name: str | None = None,
    trainer: Trainer | str = "reference",
    cluster: str = "processes",
    nodes: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    runs: Path | str = "runs",
    observer: Observer | None = None,
) -> Verdict:
    """Attack a trainer and judge what happened.

    Args:
        schedule: a schedule, or the name or path of one.
        name: what the run is called; the schedule's file name, or ``schedule``.
        trainer: a description, or the name or path of one.
        cluster: the backend; ``processes``.
        nodes: worker nodes in all, instead of what the schedule's cluster says.
        seed: decides which nodes are hit and when; the schedule's, or chosen and recorded.
        steps: stop at this step even if not everything is decided.
        runs: where the run directory is made.
        observer: told what happens while it does.

    Raises:
        ContentError, FileError: the schedule or trainer cannot be read or makes no sense.
        RunError: the run directory cannot be made.
        StartError: the trainer's command cannot be started.
        UnsupportedError: this machine cannot make one of the faults.
    """
    return anyio.run(
        lambda: attack_async(
            schedule,
            name=name,
            trainer=trainer,
            cluster=cluster,
            nodes=nodes,
            seed=seed,
            steps=steps,
            runs=runs,
            observer=observer,
        )
    )


async def attack_async(
    schedule: Schedule | str,
    *,
    name: str | None = None,
    trainer: Trainer | str = "reference",
    cluster: str = "processes",
    nodes: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    runs: Path | str = "runs",
    observer: Observer | None = None,
) -> Verdict:
    """:func:`attack` for callers that run an asyncio event loop already."""
    if cluster not in BACKENDS:
        raise ValueError(f"cluster = {cluster!r}; valid: {', '.join(BACKENDS)}")
    watcher: Observer = observer or _Silent()
    if isinstance(schedule, str):
        stem, schedule = schedules.load(schedule)
        name = name or stem
    name = name or "schedule"
    if isinstance(trainer, str):
        trainer = trainers.load(trainer)
    if not schedule.fault and steps is None:
        raise ValueError(f"{name} has no fault: say at which step to stop (steps)")
    points = [fault.on.point for fault in schedule.fault if fault.on.point is not None]
    if points and trainer.patterns is not None:
        raise ValueError(
            f"{name} waits for point {points[0]!r}, but {trainer.name} is read by patterns: only "
            "a trainer that calls chaosspot.probe has points"
        )
    plan = _settled(schedule, nodes=nodes, seed=seed)
    if (lacking := unsupported(plan)) is not None:
        raise UnsupportedError(f"{name}: {lacking}")
    for dead in heal_dead_runs():
        watcher.healed(dead)
    run = rundir.create(Path(runs), name, plan.seed or 0)
    rundir.write(run / "schedule.toml", toml.dumps(plan).encode())
    rundir.write(run / "trainer.toml", toml.dumps(trainer).encode())
    rundir.write_environment(run, cluster)
    watcher.started(run, plan, trainer)
    with h.Writer(run / "history.jsonl") as writer:
        feed = Feed(writer, watcher.record)
        with Lease.open(run) as lease:
            stage = Stage(
                folder=run,
                schedule=plan,
                name=name,
                trainer=trainer,
                seed=plan.seed or 0,
                steps=steps,
                lease=lease,
                feed=feed,
            )
            try:
                await stage.play()
            finally:
                rundir.write(run / "schedule.toml", toml.dumps(stage.resolved()).encode())
            if trainer.promises.exact != "none":
                await _find_twin(run, plan, trainer, lease, watcher)
            for leak in lease.close():
                feed.note(h.Leak, what=leak)
    shutil.rmtree(run / "nodes", ignore_errors=True)
    verdict = judge_run(run)
    if verdict.passed:  # a trainer's checkpoints are evidence only of what went wrong
        shutil.rmtree(run / "store", ignore_errors=True)
    return verdict


def judge_run(run: Path) -> Verdict:
    """Judge a run from its files alone, and write ``verdict.json``.

    Raises:
        RunError: the files are missing or damaged.
    """
    evidence = evidence_of(run)
    outcome, findings, measured = judge(evidence)
    start = next(evidence.of(h.RunStart), None)
    verdict = Verdict(
        outcome=outcome,
        schedule=start.schedule if start else "",
        trainer=evidence.trainer.name,
        seed=evidence.schedule.seed or 0,
        findings=findings,
        measured=measured,
        run=str(run),
        replay=f"chaosspot replay {shlex.quote(str(run))}",
    )
    rundir.write(run / "verdict.json", msgspec.json.format(msgspec.json.encode(verdict)))
    return verdict


def _settled(schedule: Schedule, *, nodes: int | None, seed: int | None) -> Schedule:
    """The schedule as it will run: its size and seed decided, and checked."""
    if nodes is not None:
        schedule = replace(schedule, cluster=schedule.cluster.resized(nodes))
    if seed is None:
        seed = schedule.seed if schedule.seed is not None else secrets.randbelow(2**31)
    schedule = replace(schedule, seed=seed)
    schedule.check()
    return schedule


async def _find_twin(
    run: Path, plan: Schedule, trainer: Trainer, lease: Lease, watcher: Observer
) -> None:
    """Put ``twin.jsonl`` into the run: from the cache, or by running it now.

    When the attacked run differs from a cached twin, a second twin decides whether the trainer is
    exact at all; if the twins differ from each other, ``twin-differs.jsonl`` is kept as proof.
    """
    chain = Lineage(h.read(run / "history.jsonl")).commits
    if not chain:
        return
    steps = max(chain)
    path = twins.cache_path(trainer, plan.cluster)
    known = twins.cached(path, steps)
    kept = known is not None
    if known is None:
        known = await _run_twin(run, plan, trainer, lease, watcher, twins.goal(steps))
        if twins.reaches(known, steps):
            twins.keep(path, known)
    rundir.write(run / "twin.jsonl", known)
    if kept and _differs(evidence_of(run)):  # what was kept may be of other code or data
        known = await _run_twin(run, plan, trainer, lease, watcher, twins.goal(steps))
        twins.keep(path, known)
        rundir.write(run / "twin.jsonl", known)
    if _differs(evidence_of(run)):
        second = await _run_twin(run, plan, trainer, lease, watcher, steps)
        if twins.differ(known, second):
            rundir.write(run / "twin-differs.jsonl", second)


def _differs(evidence: Evidence) -> bool:
    return any(finding.outcome is Outcome.FAIL for finding in equality.check(evidence))


async def _run_twin(
    run: Path, plan: Schedule, trainer: Trainer, lease: Lease, watcher: Observer, steps: int
) -> bytes:
    """Run the trainer undisturbed to ``steps``; returns its history."""
    folder = run / "twin"
    folder.mkdir()
    watcher.twin(None, steps)
    calm = replace(plan, fault=(), expect=Expectation())
    try:
        with h.Writer(folder / "history.jsonl") as writer:
            stage = Stage(
                folder=folder,
                schedule=calm,
                name="twin",
                trainer=trainer,
                seed=plan.seed or 0,
                steps=steps,
                lease=lease,
                feed=Feed(writer, lambda record: watcher.twin(record, steps)),
            )
            await stage.play()
        return (folder / "history.jsonl").read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
