"""Who is neither well nor gone: slow, or one of the two signs of life without the other.

*Straggler factor*: how many times its peers' median a node takes for its own part of a step, over
ten steps, the longest of them left out. What a process computed itself (``busy_s``) counts where
commits tell it, else the time from begin to commit: in a step that ends together, everybody waits
for the slowest.

*Heartbeat without progress*: how long a process that lives and can be heard commits nothing,
between two of its commits or after the last, unless it leaves. *Progress without heartbeat*: how
long after it could be heard last a process begins a step that it commits. It cannot be heard while
it is paused or its link to the coordinator is cut, and where a trainer reports ``heartbeat``, from
one such event to the next.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

import msgspec

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.schedule import FaultKind, Network, Pause
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "gray"

_STEPS = 10  # over which a node is slow, or is not

Span = tuple[float, float]  # monotonic seconds, from and to


class _Worst(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was measured, of whom, and the records that show it."""

    measured: float
    message: str
    seqs: tuple[int, ...]


def check(evidence: Evidence) -> Iterator[Finding]:
    """Measure each where it can be; fail where it is more than is expected or promised."""
    expect, promises = evidence.schedule.expect, evidence.promises
    for name, unit, worst in (
        ("straggler_factor", "x", _straggler(evidence)),
        ("stuck_s", "s", _stuck(evidence)),
        ("unheard_s", "s", _unheard(evidence)),
    ):
        expected = getattr(expect, name)
        bound = expected if expected is not None else getattr(promises, name)
        if worst is not None:
            over = bound is not None and worst.measured > bound
            yield Finding(
                oracle=NAME,
                outcome=Outcome.FAIL if over else Outcome.PASS,
                message=worst.message,
                bound=bound,
                measured=worst.measured,
                unit=unit,
                evidence=worst.seqs,
            )


def _straggler(evidence: Evidence) -> _Worst | None:
    """Of each node and each ten steps in a row that it took with others."""
    latest: dict[str, deque[tuple[float, float, h.Commit]]] = defaultdict(
        lambda: deque(maxlen=_STEPS)
    )
    worst: tuple[float, str, list[h.Commit]] = (0.0, "", [])
    for times in _own_times(evidence):
        for node, (own_s, commit) in times.items():
            peers_s = statistics.median(s for other, (s, _) in times.items() if other != node)
            window = latest[node]
            window.append((own_s, peers_s, commit))
            if len(window) < _STEPS:
                continue
            longest = max(window, key=lambda step: step[0])
            own = sum(step[0] for step in window) - longest[0]
            peers = sum(step[1] for step in window) - longest[1]
            if own / peers > worst[0]:
                worst = (own / peers, node, [commit for _, _, commit in window])
    factor, node, commits = worst
    if not commits:
        return None
    steps = f"steps {commits[0].step} to {commits[-1].step}"
    return _Worst(
        measured=factor,
        message=f"{node} took {factor:.1f} times its peers' median, {steps}",
        seqs=tuple(commit.seq for commit in commits),
    )


def _own_times(evidence: Evidence) -> Iterator[dict[str, tuple[float, h.Commit]]]:
    """For each attempt that several nodes committed: each node's time, its slowest rank's."""
    for attempt in evidence.lineage.attempts:
        begun = {(r.node, r.rank): r.t for r in attempt.begins}
        told = any(commit.busy_s is not None for commit in attempt.commits)
        times: dict[str, tuple[float, h.Commit]] = {}
        for commit in attempt.commits:
            begin_t = begun.get((commit.node, commit.rank))
            own_s = commit.busy_s if told else commit.t - begin_t if begin_t is not None else None
            if own_s and (commit.node not in times or times[commit.node][0] < own_s):
                times[commit.node] = (own_s, commit)
        if len(times) > 1:
            yield times


def _stuck(evidence: Evidence) -> _Worst | None:
    """Of all processes, the longest time without a commit of one that could be heard."""
    worst: tuple[float, Span, int, h.Commit | None] = (0.0, (0.0, 0.0), 0, None)
    for process, records in evidence.told.items():
        commits = [r for r in records if isinstance(r, h.Commit)]
        if not commits:
            continue
        deaf = _deaf(evidence, process[0], (Pause, Network))
        beats = _beats(records)
        then = [*((c.t, c.step) for c in commits[1:]), (_end_t(evidence, records, commits[-1]), 0)]
        for commit, (end_t, step) in zip(commits, then, strict=True):
            for start, end in _outside(commit.t, end_t, deaf):
                if beats:
                    end = max((t for t in beats if start <= t <= end), default=start)
                if worst[3] is None or end - start > worst[0]:
                    worst = (end - start, (start, end), step, commit)
    stuck_s, (start, end), own, last = worst
    if last is None:
        return None
    reached = {c.step for c in evidence.commits if start < c.t < end and c.step > last.step}
    steps = len(reached - {own})  # others may commit the step that ends it a moment before
    return _Worst(
        measured=stuck_s,
        message=(
            f"{last.node} lived, could be heard and committed nothing for {stuck_s:.2f} s, "
            f"in which others got on by {count(steps, 'step')}"
        ),
        seqs=(last.seq,),
    )


def _end_t(evidence: Evidence, records: list[h.Record], last: h.Commit) -> float:
    """When nothing more is to be expected of a process after its last commit."""
    kinds = (h.Drain, h.Leave, h.Exit)
    leaves = (r.t for r in records if isinstance(r, kinds) and r.t >= last.t)
    end = evidence.end_of(last)
    return min([*leaves, end.t if end else evidence.end_t, evidence.end_t])


def _unheard(evidence: Evidence) -> _Worst | None:
    """Of all steps that were committed, how long it had not been heard who began one."""
    worst: tuple[float, h.Commit | None] = (0.0, None)
    for process, records in evidence.told.items():
        beats = _beats(records)
        cut = _deaf(evidence, process[0], (Network,))
        if not beats and not cut:
            continue
        begin_t: float | None = None
        for record in records:
            if isinstance(record, h.Begin):
                begin_t = record.t
            if isinstance(record, h.Commit):
                t = record.t if begin_t is None else begin_t
                silent_s = max([_since(beats, t), *(t - a for a, b in cut if a <= t < b)])
                if worst[1] is None or silent_s > worst[0]:
                    worst = (silent_s, record)
    silent_s, commit = worst
    if commit is None:
        return None
    return _Worst(
        measured=silent_s,
        message=(
            f"{commit.node} began step {commit.step}, which it committed, {silent_s:.2f} s after "
            "it could be heard last"
        ),
        seqs=(commit.seq,),
    )


def _since(beats: list[float], t: float) -> float:
    """Seconds since the last heartbeat; none where none came before."""
    before = bisect_right(beats, t)
    return t - beats[before - 1] if before else 0.0


def _beats(records: Iterable[h.Record]) -> list[float]:
    return [r.t for r in records if isinstance(r, h.Other) and r.name == "heartbeat"]


def _deaf(evidence: Evidence, node: str, kinds: tuple[type, ...]) -> list[Span]:
    """When a node could not be heard, as the harness saw to it."""
    return sorted(
        (view.hit[node].t, view.healed.t if view.healed else evidence.end_t)
        for view in evidence.faults
        if isinstance(view.spec, kinds) and node in view.hit
        if isinstance(view.spec, Pause) or _cuts_off(view.spec)
    )


def _cuts_off(fault: FaultKind) -> bool:
    return isinstance(fault, Network) and fault.cuts and fault.link == "coordinator"


def _outside(start: float, end: float, spans: list[Span]) -> Iterator[Span]:
    """What of a span is in none of the others, in pieces."""
    for a, b in spans:
        if start < a < end:
            yield start, a
        if a < end:
            start = max(start, b)
    if start < end:
        yield start, end
