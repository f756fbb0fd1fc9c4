"""When an attack has shown all it can: pure functions over what was recorded so far."""

from __future__ import annotations

from chaosspot import history as h
from chaosspot.oracles import Evidence
from chaosspot.oracles.recovery import bound_s
from chaosspot.oracles.rejoin import came_back, returns
from chaosspot.oracles.restarts import begins_again

__all__ = ["decided", "ready_t"]


def ready_t(evidence: Evidence, workers: int) -> float | None:
    """When every one of the first ``workers`` nodes had committed once; None before."""
    committed: set[str] = set()
    for commit in evidence.commits:
        committed.add(commit.node)
        if len(committed) >= workers:
            return commit.t
    return None


def decided(evidence: Evidence, *, now: float, settle_steps: int) -> bool:
    """Whether nothing more is to be learned by going on.

    True when all faults have acted and healed, every loss was recovered from and caught up with,
    every replacement has committed and ``settle_steps`` steps came after; or when a bound is
    exceeded by half of it, after all faults have healed: who is slow is told apart from who
    never comes back. A node that failed and is being started again is waited for: where starting
    takes long, that it does nothing but fail would not be seen.
    """
    if not evidence.faults or not all(view.healed or view.missed for view in evidence.faults):
        return False
    if all(view.missed for view in evidence.faults):
        return True
    bound = bound_s(evidence)
    patience_s = evidence.trainer.timeouts.stall_s if bound is None else bound
    healed_t = max((view.healed.t for view in evidence.faults if view.healed), default=0.0)
    settled_t = healed_t

    def overdue(since_t: float) -> bool:
        return now > max(since_t + patience_s, healed_t) + (bound or 0.0) / 2

    for loss in evidence.episodes:
        if loss.start_t is None:
            if _replacements_missing(evidence):
                return False  # capacity is still to come
            return overdue(loss.effect_t)
        if loss.recovered is None:
            return overdue(loss.start_t) and not begins_again(evidence, now)
        if loss.caught_up is None:  # repeating what was lost takes as long as it takes
            return now - evidence.commits[-1].t > patience_s
        settled_t = max(settled_t, loss.caught_up.t, loss.recovered.t)
    if _replacements_missing(evidence):
        return False
    for since, _ in returns(evidence):
        commit = came_back(evidence, since)
        if commit is not None:
            settled_t = max(settled_t, commit.t)
        elif since.node in evidence.live_workers(now):
            return now - since.t > evidence.trainer.timeouts.start_s
        else:  # it ended: whether training goes on without it is yet to be seen
            ends = (g.t for g in evidence.of(h.NodeGone) if g.node == since.node)
            settled_t = max(settled_t, *ends)
    before = max((c.step for c in evidence.commits if c.t <= settled_t), default=0)
    return max((c.step for c in evidence.commits), default=0) >= before + settle_steps


def _replacements_missing(evidence: Evidence) -> bool:
    came = {up.replaces for up in evidence.of(h.NodeUp)}
    gone = {gone.node for gone in evidence.of(h.NodeGone)}
    due = {
        node
        for view in evidence.faults
        if view.spec.replace_after_s is not None
        for node in view.nodes
        if node in gone
    }
    return bool(due - came)
