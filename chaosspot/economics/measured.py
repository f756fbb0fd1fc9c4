"""What attacks say about a job: read from their run directories, and from nothing else.

Each interruption is one episode of faults that took something, however many nodes it was. The
figures are those of the trainer that was attacked, on the machine it was attacked on: what they are
for a larger job is said by :mod:`chaosspot.economics.scaling`, or not at all.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from chaosspot import history as h
from chaosspot.conductor.rundir import RunError, evidence_of, read_verdict
from chaosspot.oracles import Evidence
from chaosspot.oracles.evidence import FaultView
from chaosspot.oracles.goodput import CAUSES
from chaosspot.oracles.lineage import Lineage, process_of
from chaosspot.oracles.rework import attributed
from chaosspot.schedule import Grow
from chaosspot.verdict import Outcome, Verdict
from chaosspot.words import count

__all__ = ["Measured", "RunFigures", "read_run", "read_runs", "together"]


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One attack. Times in seconds; a tuple holds one figure for each time it was seen.

    ``restart_s``: from an interruption to the next commit, less the step that was made meanwhile.
    ``join_s``: from a replacement's start to its taking part. ``stall_s``: from a commit to the
    copied snapshot. ``flush_s``: from a notice's being read to the node's leaving.
    ``notices_kept``: of ``notices``, left in time at no cost of work. ``run_node_s``: what the
    undisturbed twin took for the same steps, times the nodes; None without a twin.
    ``split_node_s``: what was billed, by cause.
    """

    run: str
    trainer: str
    schedule: str
    outcome: Outcome
    nodes: int
    min_nodes: int
    steps: int
    events: int
    lost_steps: int
    restart_s: tuple[float, ...]
    join_s: tuple[float, ...]
    stall_s: tuple[float, ...]
    flush_s: tuple[float, ...]
    notices: int
    notices_kept: int
    step_s: float | None
    state_bytes: int | None
    snapshot_every_steps: int | None
    peers_hold_state: bool
    billed_node_s: float
    run_node_s: float | None
    split_node_s: dict[str, float]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Several attacks on one trainer together: medians, and the worst restart.

    ``lost_steps`` are per interruption, on average. ``rework`` is that of the attacks themselves:
    billed beyond ``run_node_s``, a share of it; None where a run had no twin. ``left_out``: runs
    that did not pass or were cut short: they say nothing about a job that comes back.
    """

    trainer: str
    runs: int
    left_out: int
    nodes: int
    min_nodes: int
    events: int
    restart_s: float
    worst_restart_s: float
    join_s: float
    stall_s: float
    stalls_seen: int
    lost_steps: float
    step_s: float
    state_bytes: int | None
    snapshot_every_steps: int | None
    peers_hold_state: bool
    notices: int
    notices_kept: int
    flush_s: float
    billed_node_s: float
    run_node_s: float | None
    split_node_s: dict[str, float]
    run_source: str

    @property
    def flushed(self) -> float | None:
        """The share of notices that were kept; None where there were none."""
        return self.notices_kept / self.notices if self.notices else None

    @property
    def rework(self) -> float | None:
        if not self.run_node_s:
            return None
        return self.billed_node_s / self.run_node_s - 1

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """At which snapshots were copied; None where no stall or size was seen."""
        return self.state_bytes / self.stall_s if self.state_bytes and self.stall_s else None


def read_runs(paths: Iterable[Path]) -> Measured:
    """All attacks in run directories, or in folders of them.

    Raises:
        RunError: a folder holds no runs, a run is damaged, none passed or nothing was interrupted,
            or they are of several trainers.
    """
    found: dict[Path, Path] = {}  # each once, also if it is named and in a folder that is
    unjudged: set[Path] = set()
    for path in paths:
        if (path / "history.jsonl").exists():
            found[path.resolve()] = path
            continue
        runs = [seen.parent for seen in sorted(path.glob("2*/history.jsonl"))]
        judged = [run for run in runs if (run / "verdict.json").exists()]
        if not judged:
            cut = f" with a verdict, only {count(len(runs), 'run')} without one" if runs else ""
            raise RunError(f"{str(path)!r} holds no runs{cut}")
        found |= {run.resolve(): run for run in judged}
        unjudged |= {run.resolve() for run in runs} - found.keys()
    seen = together([read_run(run) for run in found.values()])
    return msgspec.structs.replace(seen, left_out=seen.left_out + len(unjudged))


def read_run(run: Path) -> RunFigures:
    """One run directory.

    Raises:
        RunError: it is none, has no verdict or is damaged.
    """
    evidence, verdict = evidence_of(run), read_verdict(run)
    try:
        return figures_of(evidence, verdict, name=run.name)
    except (TypeError, ValueError) as error:  # numbers that none of ours wrote
        raise RunError(f"{str(run / 'verdict.json')!r} is damaged: {error}") from error


def figures_of(evidence: Evidence, verdict: Verdict, *, name: str) -> RunFigures:
    """The figures of one attack from what is known about it."""
    trainer = evidence.trainer
    calm = evidence.twin if evidence.twin else evidence.history
    step_s = _step_s(calm)
    grown = {node for view in evidence.faults for node in view.seen("up")}
    nodes = sum(up.replaces is None and node not in grown for node, up in evidence.workers.items())
    interruptions = [
        episode
        for episode in evidence.episodes
        if any(_interrupts(evidence.faults[index]) for index in episode.faults)
    ]
    steps = len(evidence.lineage.commits)
    run_s = _time_to(evidence.twin, steps) if evidence.twin else None
    measured = verdict.measured
    kept, flush_s = _notices(evidence)
    return RunFigures(
        run=name,
        trainer=trainer.name,
        schedule=verdict.schedule,
        outcome=verdict.outcome,
        nodes=nodes,
        min_nodes=trainer.min_nodes,
        steps=steps,
        events=len(interruptions),
        lost_steps=int(measured.get("rework_steps") or 0),
        restart_s=tuple(
            max(0.0, episode.recovery_s - (step_s or 0.0))
            for episode in interruptions
            if episode.recovery_s is not None
        ),
        join_s=tuple(
            finding.measured
            for finding in verdict.findings
            if finding.oracle == "rejoin" and finding.unit == "s" and finding.measured is not None
        ),
        stall_s=tuple(_stalls(evidence.history)),
        flush_s=tuple(flush_s),
        notices=len(kept),
        notices_kept=sum(kept),
        step_s=step_s,
        state_bytes=max((s.bytes for s in evidence.of(h.Snapshot)), default=0) or None,
        snapshot_every_steps=trainer.promises.snapshot_every_steps,
        peers_hold_state=trainer.promises.peers_hold_state,
        billed_node_s=float(measured.get("billed_node_s") or 0.0),
        run_node_s=run_s * nodes if run_s is not None else None,
        split_node_s={
            cause: float(measured[f"{cause}_node_s"])
            for cause in CAUSES
            if measured.get(f"{cause}_node_s") is not None
        },
    )


def together(figures: Sequence[RunFigures]) -> Measured:
    """Figures of several attacks as one.

    Raises:
        RunError: see :func:`read_runs`.
    """
    names = sorted({f.trainer for f in figures})
    if len(names) != 1:
        raise RunError(f"runs of several trainers: {', '.join(names) or 'none at all'}")
    used = [f for f in figures if f.outcome is Outcome.PASS]
    if not used:
        first = figures[0]
        raise RunError(
            f"none of {count(len(figures), 'run')} of {names[0]} passed; {first.run}: "
            f"{first.outcome.value}"
        )
    restarts = [s for f in used for s in f.restart_s]
    steps_s = [f.step_s for f in used if f.step_s is not None]
    if not restarts or not steps_s:
        raise RunError(
            f"{count(len(used), 'run')} of {names[0]}: nothing was interrupted, or no steps were "
            "reported, so nothing was measured"
        )
    stalls = [s for f in used for s in f.stall_s]
    events = sum(f.events for f in used)
    twins = [f.run_node_s for f in used if f.run_node_s is not None]
    known = len(twins) == len(used)
    source = "the undisturbed twins" if known else "no twin of some"
    return Measured(
        trainer=names[0],
        runs=len(used),
        left_out=len(figures) - len(used),
        nodes=max(f.nodes for f in used),
        min_nodes=max(f.min_nodes for f in used),
        events=events,
        restart_s=statistics.median(restarts),
        worst_restart_s=max(restarts),
        join_s=_median([s for f in used for s in f.join_s]),
        stall_s=_median(stalls),
        stalls_seen=len(stalls),
        lost_steps=sum(f.lost_steps for f in used) / events,
        step_s=statistics.median(steps_s),
        state_bytes=max(f.state_bytes or 0 for f in used) or None,
        snapshot_every_steps=used[0].snapshot_every_steps,
        peers_hold_state=all(f.peers_hold_state for f in used),
        notices=sum(f.notices for f in used),
        notices_kept=sum(f.notices_kept for f in used),
        flush_s=_median([s for f in used for s in f.flush_s]),
        billed_node_s=sum(f.billed_node_s for f in used),
        run_node_s=sum(twins) if known else None,
        split_node_s={
            cause: sum(f.split_node_s.get(cause, 0.0) for f in used)
            for cause in CAUSES
            if all(cause in f.split_node_s for f in used)
        },
        run_source=f"{source} of {count(len(used), 'attack')} on {names[0]}, to the same step",
    )


def _interrupts(view: FaultView) -> bool:
    """Whether a fault took something from the job, rather than giving it nodes or false news."""
    return bool(view.disturbed) and not isinstance(view.spec, Grow)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _step_s(records: tuple[h.Record, ...]) -> float | None:
    times = [commit.t for commit in Lineage(records).commits.values()]
    gaps = [later - sooner for sooner, later in pairwise(times) if later > sooner]
    return statistics.median(gaps) if gaps else None


def _time_to(records: tuple[h.Record, ...], step: int) -> float | None:
    """From the first worker's start to the commit of a step; None where it was not reached."""
    start = next((r.t for r in records if isinstance(r, h.NodeUp) and r.role == "worker"), None)
    done = Lineage(records).commits.get(step)
    return done.t - start if start is not None and done is not None else None


def _stalls(records: Iterable[h.Record]) -> Iterable[float]:
    """From a process's commit of a step to its copy of the state after it, which it waits for."""
    committed: dict[object, h.Commit] = {}
    for record in records:
        if isinstance(record, h.Commit):
            committed[process_of(record)] = record
        elif isinstance(record, h.Snapshot) and record.stage == "staged":
            commit = committed.pop(process_of(record), None)
            if commit is not None and commit.step == record.step:
                yield max(0.0, record.t - commit.t)


def _notices(evidence: Evidence) -> tuple[list[bool], list[float]]:
    """Whether each notice that held was kept, and how long each node took from reading it."""
    owed = attributed(evidence)
    kept, flush_s = [], []
    for view in evidence.faults:
        for node, published in view.seen("published").items():
            gone = next(
                (g for g in evidence.of(h.NodeGone) if g.node == node and g.t >= published.t), None
            )
            if node in view.seen("withdrawn") or gone is None:
                continue
            lead_s = (published.deadline_wall_s or published.wall) - published.wall
            in_time = gone.by_itself and gone.t - published.t <= lead_s
            kept.append(in_time and not owed.get(view.index))
            read = next(
                (n for n in evidence.of(h.NoticeSeen) if n.node == node and n.t >= published.t),
                None,
            )
            if read is not None:
                flush_s.append(max(0.0, gone.t - read.t))
    return kept, flush_s
