"""No more is repeated than may be.

Rework counts steps of the lineage that had been begun or committed before in an abandoned
attempt, each extra time once, not per rank.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        bound = _bound(evidence, loss.survivors, lost)
        if bound is not None:
            yield _finding(mine, bound, loss.faults[0])
    left = [attempt for attempts in owed.values() for attempt in attempts]
    if left and evidence.promises.snapshot_every_steps is not None:
        yield _finding(left, 0, None)


def attributed(evidence: Evidence) -> dict[int | None, list[Attempt]]:
    """Abandoned attempts by the fault they are owed to: the last one that had been made when the
    step was tried again; None where there was none.

    What counts is when it was made: survivors may go on before its effect has been verified.
    """
    lineage = evidence.lineage
    owed: dict[int | None, list[Attempt]] = {}
    for attempt in lineage.abandoned:
        redo_t = lineage.redo_t(attempt)
        before = [v for v in evidence.faults if _made_t(v) <= redo_t]
        owner = max(before, key=_made_t).index if before else None
        owed.setdefault(owner, []).append(attempt)
    return owed


def _made_t(view: FaultView) -> float:
    """When a fault that had an effect was made; infinity for one that had none."""
    if view.injected is None or not view.effects:
        return float("inf")
    return view.injected.t


def _bound(evidence: Evidence, survivors: int, lost: int) -> float | None:
    """Steps that may be repeated. Nodes of one fault die moments apart, and each of those moments
    may find another attempt in flight: one more step for each."""
    expected = evidence.schedule.expect.rework_steps
    if expected is not None:
        return expected
    promised = evidence.promises.snapshot_every_steps
    if promised is None:
        return None
    if evidence.promises.peers_hold_state and survivors >= evidence.trainer.min_nodes:
        return lost
    return promised + lost


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
