"""Disturbances and how the job came back from them.

*Recovery* runs from the later of a fault's effect and the moment the capacity it needs is there
again, to the first commit of a step begun after the effect by a process that was not hit.
*Catch-up* runs to the first commit beyond the highest step committed before the effect. Faults
whose recoveries overlap are one episode.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from chaosspot import history as h
from chaosspot.oracles.lineage import process_of

if TYPE_CHECKING:
    from chaosspot.oracles.evidence import Evidence, FaultView

__all__ = ["Episode", "episodes", "first_commit_after", "longest_gap_s"]


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One or several overlapping faults; times are monotonic seconds.

    ``start_t``: when recovery could start. ``recovered`` and ``caught_up`` are the commits that
    ended it, None while they have not come. ``gap_s``: the longest time without a commit of a new
    step, for a leave that was announced.
    """

    faults: tuple[int, ...]
    effect_t: float
    start_t: float | None
    highest_step: int
    survivors: int
    announced: bool
    recovered: h.Commit | None
    caught_up: h.Commit | None
    gap_s: float | None

    @property
    def recovery_s(self) -> float | None:
        """Seconds; for an announced leave the longest gap between commits."""
        if self.recovered is None or self.start_t is None:
            return None
        if self.announced and self.gap_s is not None:
            return self.gap_s
        return max(0.0, self.recovered.t - self.start_t)

    @property
    def catch_up_s(self) -> float | None:
        if self.caught_up is None or self.start_t is None:
            return None
        return max(0.0, self.caught_up.t - self.start_t)


def episodes(evidence: Evidence) -> tuple[Episode, ...]:
    """All episodes, in order of effect; faults without effect have none.

    Oracles take them from ``evidence.episodes``, where they are kept.
    """
    hit = [view for view in evidence.faults if view.effect_t is not None]
    merged: list[Episode] = []
    for view in sorted(hit, key=lambda v: v.effect_t or 0.0):
        effect_t = view.effect_t or 0.0
        last = merged[-1] if merged else None
        if last is not None and (last.recovered is None or last.recovered.t > effect_t):
            views = [v for v in hit if v.index in (*last.faults, view.index)]
            merged[-1] = _episode(evidence, views)
        else:
            merged.append(_episode(evidence, [view]))
    return tuple(merged)


def _episode(evidence: Evidence, views: list[FaultView]) -> Episode:
    first_t = min(v.first_effect_t or 0.0 for v in views)
    effect_t = max(v.effect_t or 0.0 for v in views)
    able = evidence.able_workers(effect_t) | _given_up(evidence, views, effect_t)
    needed = evidence.trainer.min_nodes
    start_t = effect_t if len(able) >= needed else _capacity_t(evidence, views, effect_t)
    loss_t = min((v.effect_t or 0.0) for v in views)
    highest = max((c.step for c in evidence.commits if c.t <= loss_t), default=0)
    recovered = first_commit_after(evidence, effect_t)
    caught_up = next((c for c in evidence.commits if c.t > effect_t and c.step > highest), None)
    announced = all(v.seen("published") or v.spec.kind == "terminate" for v in views)
    return Episode(
        faults=tuple(v.index for v in views),
        effect_t=effect_t,
        start_t=start_t,
        highest_step=highest,
        survivors=len(able),
        announced=announced and len(able) >= needed,
        recovered=recovered,
        caught_up=caught_up,
        gap_s=longest_gap_s(evidence.commits, first_t, recovered.t) if recovered else None,
    )


def _given_up(evidence: Evidence, views: list[FaultView], until_t: float) -> set[str]:
    """Workers that failed by themselves since the first of the faults was made, which took others.

    They do not want for capacity: it is the trainer that did not come back from the faults. They
    may fail before an effect has been verified.
    """
    since_t = min(view.injected.t for view in views if view.injected)
    taken = {node for view in views for node in view.seen("gone")}
    return {
        end.node
        for end in evidence.of(h.NodeGone)
        if end.by_itself and end.code and since_t <= end.t <= until_t
        if end.node in evidence.workers and end.node not in taken
    }


def first_commit_after(evidence: Evidence, t: float) -> h.Commit | None:
    """The first commit of a step that its own process began after ``t``.

    Where a trainer reports no begins, a process's second commit after ``t`` is surely one.
    """
    begun: dict[tuple[object, ...], float] = {}
    earlier: set[tuple[object, ...]] = set()
    for record in evidence.of(h.Begin, h.Commit):
        if isinstance(record, h.Begin):
            begun[(*process_of(record), record.step, record.generation)] = record.t
        elif isinstance(record, h.Commit) and record.t > t:
            begin_t = begun.get((*process_of(record), record.step, record.generation))
            who = process_of(record)
            if begin_t is not None and begin_t > t:
                return record
            if begin_t is None and not evidence.begins:
                if who in earlier:
                    return record
                earlier.add(who)
    return None


def longest_gap_s(commits: tuple[h.Commit, ...], start_t: float, end_t: float) -> float:
    """Longest time between the first commits of successive new steps within a window.

    The last commit before the window opens it, so that a gap across its start counts whole.
    """
    times: list[float] = []
    highest = -1
    for commit in commits:
        if commit.step > highest:
            highest = commit.step
            times.append(commit.t)
    inside = [t for t in times if t <= end_t]
    first = max((i for i, t in enumerate(inside) if t <= start_t), default=0)
    window = inside[first:]
    return max((b - a for a, b in itertools.pairwise(window)), default=0.0)


def _capacity_t(evidence: Evidence, views: list[FaultView], after_t: float) -> float | None:
    """When enough workers were able again after ``after_t``; None while there are too few.

    At the end, if those that the faults did not take have all given up.
    """
    needed = evidence.trainer.min_nodes

    def enough(t: float) -> bool:
        return len(evidence.able_workers(t) | _given_up(evidence, views, t)) >= needed

    changes = [*evidence.of(h.NodeUp), *evidence.of(h.FaultHealed)]
    times = sorted(record.t for record in changes if record.t > after_t)
    exited = evidence.stop is not None and evidence.stop.reason == "exited"
    if exited and _given_up(evidence, views, evidence.end_t):
        times.append(evidence.end_t)
    return next((t for t in times if enough(t)), None)
