"""A job replayed on a trace: what of the time that is billed is useful.

The job runs while it has its ``min_nodes``, with at most ``nodes``; a *gang* needs all it has.
Every moment at which nodes are lost interrupts it, once, however many go: nothing in a count says
that it was a spare. A *spell* is the time from one interruption to the next. It begins with a
restart, goes on in segments of useful work and a snapshot's stall, and ends with the loss of what
had not been saved, unless peers hold it or a notice left time to save it. The end of the trace
counts as an interruption, which is the careful choice.

Work is taken to grow in proportion to the nodes that take part; to let new nodes in stops nobody
else, and on-demand nodes that stand in are there at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from chaosspot.checked import at_least_0, at_least_1
from chaosspot.economics.interval import Costs
from chaosspot.economics.ledger import Rework
from chaosspot.traces.trace import Array, Counts, Flags, Trace, TraceError

__all__ = ["Job", "Replay", "replay"]

Joins = Literal["at-once", "at-restart"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """How a job uses nodes.

    ``nodes``: the most it uses. ``min_nodes``: the least it runs with; equal for a gang.
    ``reserved_nodes``: of these, on nodes that are never lost. ``fallback``: on-demand nodes stand
    in for those that are missing for ``min_nodes``, so that it never waits. ``bill_waiting``: spot
    nodes that are there but not used, are kept and billed. ``joins``: whether new nodes take part
    at once or after the next interruption. ``survives_nodes``: so many nodes may go at one moment
    without taking the last copy of the state; by default any number that leaves one. It matters
    where the costs say what is lost while peers hold the state.

    Raises:
        ValueError: the numbers do not fit.
    """

    nodes: int
    min_nodes: int
    costs: Costs
    reserved_nodes: int = 0
    fallback: bool = False
    bill_waiting: bool = False
    joins: Joins = "at-once"
    survives_nodes: int | None = None

    def __post_init__(self) -> None:
        at_least_1(nodes=self.nodes, min_nodes=self.min_nodes)
        at_least_0(reserved_nodes=self.reserved_nodes)
        if self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes = {self.min_nodes}: at most nodes = {self.nodes}")
        if self.reserved_nodes >= self.nodes:
            raise ValueError(
                f"reserved_nodes = {self.reserved_nodes}: below nodes = {self.nodes}, else there "
                "is nothing on spot"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """What came of it. Node-seconds by spell, so that spells can be drawn again.

    ``on_demand`` and ``reserved`` are parts of ``billed``; what is not useful is lost, restart,
    stall or idle. ``running_s`` and ``waiting_s`` are seconds of wall clock.
    """

    useful_node_s: Array
    lost_node_s: Array
    restart_node_s: Array
    stall_node_s: Array
    idle_node_s: Array
    on_demand_node_s: Array
    reserved_node_s: Array
    running_s: float
    waiting_s: float
    events: int
    nodes_lost: int
    days: float

    @property
    def spells(self) -> int:
        return len(self.useful_node_s)

    @property
    def billed_node_s(self) -> Array:
        """By spell."""
        worked: Array = self.useful_node_s + self.lost_node_s + self.restart_node_s
        return worked + self.stall_node_s + self.idle_node_s

    @property
    def useful_node_h(self) -> float:
        return float(self.useful_node_s.sum()) / 3600

    @property
    def billed_node_h(self) -> float:
        return float(self.billed_node_s.sum()) / 3600

    @property
    def rework(self) -> Rework:
        return Rework(
            lost_node_s=float(self.lost_node_s.sum()),
            restart_node_s=float(self.restart_node_s.sum()),
            stall_node_s=float(self.stall_node_s.sum()),
            idle_node_s=float(self.idle_node_s.sum()),
        )

    @property
    def rework_ratio(self) -> float:
        """Billed beyond the useful, a share of the useful; infinite when nothing was useful."""
        return self.rework.ratio(float(self.useful_node_s.sum()))


def replay(trace: Trace, job: Job) -> Replay:
    """Run ``job`` on ``trace`` from its start.

    Raises:
        TraceError: the job never had the nodes it needs.
    """
    counts = np.minimum(trace.counts, job.nodes - job.reserved_nodes)
    there = counts + job.reserved_nodes
    runs = np.full(len(counts), True) if job.fallback else there >= job.min_nodes
    if not runs.any():
        raise TraceError(
            f"{trace.name}: has {trace.most_nodes} nodes at most; the job needs "
            f"{job.min_nodes - job.reserved_nodes}"
        )
    begins, ends = _spells(trace, runs)
    edges_s = np.append(trace.times_s, trace.end_s)
    starts_s, stops_s = edges_s[begins], edges_s[ends]
    # A spell is billed from its start to the next one's, the first one from the trace's.
    paid_from_s = np.concatenate([[0.0], starts_s[1:]])
    paid_to_s = np.append(starts_s[1:], trace.end_s)

    taking_part = np.maximum(there, job.min_nodes) if job.fallback else there
    if job.joins == "at-restart":
        taking_part = _as_at_start(taking_part, begins, ends)
    work = _Integral(edges_s, np.where(runs, taking_part, 0))
    costs = job.costs
    ready_s = np.minimum(starts_s + costs.restart_s, stops_s)
    segment_s = costs.interval_s + costs.stall_s
    whole = np.floor((stops_s - ready_s) / segment_s + 1e-9)
    saved_s = np.minimum(ready_s + whole * segment_s, stops_s)
    in_segments = work.between(ready_s, saved_s)
    computed = np.minimum(stops_s - saved_s, costs.interval_s)
    unsaved = work.between(saved_s, saved_s + computed)
    kept = _kept(costs, computed, _peers_hold(trace, job, there, ends)) * unsaved
    stall = in_segments * (costs.stall_s / segment_s)
    stall += work.between(saved_s + computed, stops_s)
    billed = work.between(starts_s, stops_s)

    reserved = job.reserved_nodes * (paid_to_s - paid_from_s)
    idle = reserved - job.reserved_nodes * (stops_s - starts_s)
    if job.bill_waiting:
        kept_nodes = _Integral(edges_s, np.maximum(there, np.where(runs, taking_part, 0)))
        idle = np.maximum(kept_nodes.between(paid_from_s, paid_to_s) - billed, 0.0)
    useful = in_segments * (costs.interval_s / segment_s) + kept
    joining: Array = np.zeros(len(begins))
    if job.joins == "at-once":
        joining = np.minimum(useful, _joining(trace, runs, begins, stops_s, costs.join_s, counts))
    lack = _Integral(edges_s, np.maximum(0, job.min_nodes - there) * job.fallback)
    running_s = float((stops_s - starts_s).sum())
    return Replay(
        useful_node_s=useful - joining,
        lost_node_s=np.maximum(unsaved - kept, 0.0),
        restart_node_s=work.between(starts_s, ready_s) + joining,
        stall_node_s=stall,
        idle_node_s=idle,
        on_demand_node_s=lack.between(starts_s, stops_s),
        reserved_node_s=reserved,
        running_s=running_s,
        waiting_s=trace.end_s - running_s,
        events=int(np.count_nonzero(trace.lost[1:])),
        nodes_lost=int(trace.lost[1:].sum()),
        days=trace.days,
    )


class _Integral:
    """Node-seconds between any two times of a step function."""

    def __init__(self, edges_s: Array, nodes: Counts) -> None:
        self._edges_s = edges_s
        self._filled = np.concatenate([[0.0], np.cumsum(nodes * np.diff(edges_s))])

    def between(self, from_s: Array, to_s: Array) -> Array:
        found: Array = np.interp(to_s, self._edges_s, self._filled) - np.interp(
            from_s, self._edges_s, self._filled
        )
        return found


def _spells(trace: Trace, runs: Flags) -> tuple[Counts, Counts]:
    """Where spells begin and end, as numbers of the trace's steps; an end is not in the spell."""
    before = np.concatenate([[False], runs[:-1]])
    hit = (trace.lost > 0) | ~before
    begins = np.flatnonzero(runs & hit & (trace.times_s < trace.end_s))
    after = np.append(np.flatnonzero(~runs | hit), len(runs))
    ends = after[np.searchsorted(after, begins, side="right")]
    return begins, ends


def _as_at_start(nodes: Counts, begins: Counts, ends: Counts) -> Counts:
    fixed = nodes.copy()
    for begin, end in zip(begins, ends, strict=True):
        fixed[begin:end] = nodes[begin]
    return fixed


def _joining(
    trace: Trace, runs: Flags, begins: Counts, stops_s: Array, join_s: float, counts: Counts
) -> Array:
    """Node-seconds, by spell, of spot nodes that came while the job ran, before they take part."""
    came = np.maximum(0, np.diff(counts, prepend=counts[:1]))
    inside = runs & (came > 0)
    inside[begins] = False  # a restart is what they wait for
    steps = np.flatnonzero(inside)
    spell = np.searchsorted(begins, steps, side="right") - 1
    waited = came[steps] * np.minimum(join_s, stops_s[spell] - trace.times_s[steps])
    summed = np.bincount(spell, weights=waited, minlength=len(begins))
    return summed.astype(np.float64)


def _peers_hold(trace: Trace, job: Job, there: Counts, ends: Counts) -> Flags:
    """Whether the loss that ends each spell leaves a copy of the state with someone."""
    gone = np.append(trace.lost, trace.most_nodes)[ends]
    left = there[ends - 1] - np.minimum(gone, there[ends - 1])
    bearable = gone <= job.survives_nodes if job.survives_nodes is not None else gone >= 0
    held: Flags = bearable & (left > 0)
    return held


def _kept(costs: Costs, computed_s: Array, peers_hold: Flags) -> Array:
    """The share of what was computed since the last snapshot that survives an interruption."""
    lost_s = computed_s
    if costs.lost_s is not None:
        lost_s = np.where(peers_hold, np.minimum(computed_s, costs.lost_s), computed_s)
    flush_s = np.minimum(computed_s, costs.flush_s)
    gone_s = costs.flushed * flush_s + (1 - costs.flushed) * lost_s
    share: Array = 1 - gone_s / np.where(computed_s > 0, computed_s, 1.0)
    return share
