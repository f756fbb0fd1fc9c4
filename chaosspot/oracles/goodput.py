"""Where the node-seconds went that were paid for.

*Useful*: in attempts of the lineage. *Lost*: in attempts that were thrown away. *Restart*: from a
node's start, or start again, to its first begin or commit. *Stall*: while a loss was not recovered
from. *Idle*: the rest. A moment that is two of these is the first of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence

__all__ = ["CAUSES", "billed_node_s", "split_node_s"]

CAUSES = ("useful", "lost", "restart", "stall", "idle")

Span = tuple[float, float]  # monotonic seconds, from and to


def billed_node_s(evidence: Evidence) -> float:
    """Node-seconds of workers from start to gone, or to the end of the run."""
    return sum(_length(lives) for lives in lives_of(evidence).values())


def split_node_s(evidence: Evidence) -> dict[str, float] | None:
    """The billed node-seconds by cause; None for a trainer that reports no begins."""
    if not evidence.begins:
        return None
    useful, lost = _attempts(evidence)
    stalls = [
        (loss.effect_t, loss.recovered.t if loss.recovered else evidence.end_t)
        for loss in evidence.episodes
    ]
    sums = dict.fromkeys(CAUSES, 0.0)
    for node, lives in lives_of(evidence).items():
        restarts = list(_restarts(evidence, node, lives))
        taken: list[Span] = []
        before_s = 0.0
        for cause, spans in zip(
            CAUSES, (useful[node], lost[node], restarts, stalls, lives), strict=True
        ):
            taken = _union([*taken, *_within(spans, lives)])
            after_s = _length(taken)
            sums[cause] += after_s - before_s
            before_s = after_s
    return sums


def lives_of(evidence: Evidence) -> dict[str, list[Span]]:
    """From when to when each worker was there, by node."""
    lives: dict[str, list[Span]] = defaultdict(list)
    up_t: dict[str, float] = {}
    for record in evidence.of(h.NodeUp, h.NodeGone):
        if isinstance(record, h.NodeUp) and record.role == "worker":
            up_t[record.node] = record.t
        elif isinstance(record, h.NodeGone) and record.node in up_t:
            lives[record.node].append((up_t.pop(record.node), record.t))
    for node, t in up_t.items():
        lives[node].append((t, max(t, evidence.end_t)))
    return lives


def _attempts(evidence: Evidence) -> tuple[dict[str, list[Span]], dict[str, list[Span]]]:
    """Spans in attempts of the lineage and in abandoned ones, by node."""
    lineage = evidence.lineage
    kept = {id(lineage.attempt_of(commit)) for commit in lineage.commits.values()}
    thrown = {id(attempt) for attempt in lineage.abandoned}
    effects = [loss.effect_t for loss in evidence.episodes]
    useful: dict[str, list[Span]] = defaultdict(list)
    lost: dict[str, list[Span]] = defaultdict(list)
    for begin, then in _tries(evidence):
        attempt = lineage.attempt_of(begin)
        committed = isinstance(then, h.Commit) and lineage.attempt_of(then) is attempt
        if id(attempt) in kept and committed:
            useful[begin.node].append((begin.t, then.t))
        elif id(attempt) in thrown:
            # What was cut off was worked on until what cut it off; then the node waited.
            cuts = [t for t in effects if begin.t <= t < then.t and not committed]
            lost[begin.node].append((begin.t, min(cuts, default=then.t)))
    return useful, lost


def _tries(evidence: Evidence) -> Iterator[tuple[h.Begin, h.Record]]:
    """Each begin, with its process's next record of that sort or the end of its node."""
    for records in evidence.told.values():
        begin: h.Begin | None = None
        for record in records:
            if isinstance(record, (h.Begin, h.Commit, h.Restore)):
                if begin is not None:
                    yield begin, record
                begin = record if isinstance(record, h.Begin) else None
        if begin is not None:
            end = evidence.end_of(begin) or evidence.stop or evidence.history[-1]
            yield begin, end


def _restarts(evidence: Evidence, node: str, lives: list[Span]) -> Iterator[Span]:
    """From each start on a node to the first begin or commit after it, or the end."""
    starts = [start for start, _ in lives]
    starts += [again.t for again in evidence.of(h.NodeRestart) if again.node == node]
    works = (*evidence.begins, *evidence.commits)
    working = sorted(record.t for record in works if record.node == node)
    for start in starts:
        next_work = bisect_left(working, start)
        yield start, working[next_work] if next_work < len(working) else evidence.end_t


def _within(spans: Iterable[Span], lives: list[Span]) -> Iterator[Span]:
    for start, end in spans:
        for up, gone in lives:
            if max(start, up) < min(end, gone):
                yield max(start, up), min(end, gone)


def _union(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)
