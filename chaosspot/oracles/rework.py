"""No more is repeated than may be.

Rework counts steps of the lineage that had been begun or committed before in an abandoned
attempt, each extra time once, not per rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaosspot.oracles.episodes import Episode
from chaosspot.oracles.evidence import Evidence, FaultView
from chaosspot.oracles.lineage import Attempt
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "rework"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when a loss cost more steps than allowed, or steps were repeated without a loss."""
    if evidence.commits and all(c.generation is None for c in evidence.commits):
        if evidence.promises.snapshot_every_steps is not None:
            yield Finding(
                oracle=NAME,
                outcome=Outcome.UNKNOWN,
                message="rework is promised to be bounded, but commits carry no generation",
            )
        return
    owed = attributed(evidence)
    for loss in evidence.episodes:
        mine = [attempt for index in loss.faults for attempt in owed.pop(index, [])]
        lost = sum(len(evidence.faults[index].disturbed) for index in loss.faults)
        bound = _bound(evidence, loss, lost)
        if bound is not None:
            yield _finding(mine, bound, loss.faults[0])
    left = [attempt for attempts in owed.values() for attempt in attempts]
    if left and evidence.promises.snapshot_every_steps is not None:
        yield _finding(left, 0, None)


def attributed(evidence: Evidence) -> dict[int | None, list[Attempt]]:
    """Abandoned attempts by the fault they are owed to; None where there was none.

    It is one that cost something between what was last heard of the attempt and the moment it was
    thrown away, else the last one that had been made by then. A loss right after another one is
    not charged with what that one had thrown away already.
    """
    owed: dict[int | None, list[Attempt]] = {}
    for attempt in evidence.lineage.abandoned:
        until_t = evidence.lineage.thrown_t(attempt)
        since_t = max(record.t for record in attempt.records)
        costly = _between(evidence, _cost_t, since_t, until_t)
        owner = _breaker(evidence, attempt, costly, until_t) if costly else None
        if owner is None:
            made = _between(evidence, _made_t, 0.0, until_t)
            owner = made[-1] if made else None
        owed.setdefault(owner.index if owner else None, []).append(attempt)
    return owed


def _between(
    evidence: Evidence, time_of: Callable[[FaultView], float], since_t: float, until_t: float
) -> list[FaultView]:
    """The faults within a span of time, in order."""
    return sorted((v for v in evidence.faults if since_t <= time_of(v) <= until_t), key=time_of)


def _breaker(
    evidence: Evidence, attempt: Attempt, costly: list[FaultView], until_t: float
) -> FaultView:
    """The one of these faults that the attempt was thrown away for.

    What was not committed is broken by the first that takes one of its nodes; what was committed is
    lost with the last node that held the state. Else it is the last one that somebody went back
    after.
    """
    taken_by = {node: view for view in reversed(costly) for node in view.seen("gone")}
    if not attempt.commits:
        nodes = {process[0] for process in attempt.processes}
        return next((v for v in costly if nodes & set(v.seen("gone"))), costly[-1])
    last_t = max(commit.t for commit in attempt.commits)
    cold = next((c for c in evidence.cold_starts if last_t <= c.last.t <= until_t), None)
    return costly[-1] if cold is None else taken_by.get(cold.last.node, costly[-1])


def _made_t(view: FaultView) -> float:
    """When a fault that had an effect was made; infinity for one that had none.

    What counts is when it was made: survivors may go on before its effect has been verified. What
    costs nobody's work by itself counts once it was seen to do something.
    """
    if view.injected is None or not view.effects:
        return float("inf")
    if not view.disturbed:
        return view.effect_t or float("inf")
    return view.injected.t


def _cost_t(view: FaultView) -> float:
    """The same, but a notice costs nothing before a node goes because of it."""
    if view.seen("published"):
        return min((gone.t for gone in view.seen("gone").values()), default=float("inf"))
    return _made_t(view)


def _bound(evidence: Evidence, loss: Episode, lost: int) -> float | None:
    """Steps that may be repeated. Nodes of one fault die moments apart, and each of those moments
    may find another attempt in flight: one more step for each."""
    expected = evidence.schedule.expect.rework_steps
    if expected is not None:
        return expected
    promised = evidence.promises.snapshot_every_steps
    if promised is None:
        return None
    enough = loss.survivors >= evidence.trainer.min_nodes
    if evidence.promises.peers_hold_state and enough and not _took_the_last(evidence, loss):
        return lost
    return promised + lost


def _took_the_last(evidence: Evidence, loss: Episode) -> bool:
    """Whether these faults took the last node that held the state: newcomers live, and have not
    been given it yet."""
    views = [evidence.faults[index] for index in loss.faults]
    return any(
        view.injected is not None and view.injected.t <= cold.last.t <= loss.effect_t
        for cold in evidence.cold_starts
        for view in views
        if cold.last.node in view.seen("gone")
    )


def _finding(attempts: list[Attempt], bound: float, fault: int | None) -> Finding:
    repeated = len(attempts)
    steps = sorted({attempt.step for attempt in attempts})
    if not steps:
        which = ""
    elif len(steps) == 1:
        which = f" (step {steps[0]})"
    else:
        which = f" (steps {steps[0]} to {steps[-1]})"
    cause = "" if fault is not None else " without any fault"
    return Finding(
        oracle=NAME,
        outcome=Outcome.FAIL if repeated > bound else Outcome.PASS,
        message=f"{count(repeated, 'step')} of work repeated{cause}{which}",
        bound=bound,
        measured=repeated,
        unit="steps",
        fault=fault,
        evidence=tuple(seq for attempt in attempts for seq in attempt.seqs)[:20],
    )
