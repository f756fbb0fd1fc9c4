"""A notice is kept: the node left by itself before the deadline, and its leaving cost no rework.

Where the schedule says that there is no reason to leave, the node has to stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence, FaultView
from chaosspot.oracles.rework import attributed
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "notice"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Only for trainers that promise to drain; one finding a node and notice."""
    if not evidence.promises.drains_on_notice:
        return
    owed = attributed(evidence)
    for view in evidence.faults:
        withdrawn = view.seen("withdrawn")
        for node, published in view.seen("published").items():
            if evidence.schedule.expect.stays:
                yield _stayed(evidence, view, node, published)
            elif node not in withdrawn:  # who stays after that has broken nothing
                yield _left(evidence, view, node, published)
        if view.seen("published") and (repeated := owed.get(view.index)):
            yield Finding(
                oracle=NAME,
                outcome=Outcome.FAIL,
                message=f"the announced leave cost {count(len(repeated), 'step')} of rework",
                bound=0,
                measured=len(repeated),
                unit="steps",
                fault=view.index,
                evidence=tuple(seq for attempt in repeated for seq in attempt.seqs)[:20],
            )


def _stayed(evidence: Evidence, view: FaultView, node: str, published: h.FaultEffect) -> Finding:
    over = view.seen("withdrawn").get(node)
    gone = view.seen("gone").get(node)
    if over is not None:
        outcome, message = Outcome.PASS, f"{node} stayed, as nothing was to take it"
    elif gone is not None:
        took_s = gone.t - published.t
        message = f"{node} was gone {took_s:.1f} s after a notice that was no reason to leave"
        outcome = Outcome.FAIL
    else:
        outcome, message = Outcome.UNKNOWN, f"{node}: the run ended before its notice was over"
    return Finding(
        oracle=NAME,
        outcome=outcome,
        message=message,
        fault=view.index,
        evidence=tuple(record.seq for record in (published, over, gone) if record is not None),
    )


def _left(evidence: Evidence, view: FaultView, node: str, published: h.FaultEffect) -> Finding:
    gone = next((r for r in evidence.of(h.NodeGone) if r.node == node and r.t >= published.t), None)
    lead_s = (published.deadline_wall_s or published.wall) - published.wall
    if gone is None:
        return Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message=f"{node}: the run ended before the notice's deadline",
            bound=lead_s,
            unit="s",
            fault=view.index,
            evidence=(published.seq,),
        )
    took_s = gone.t - published.t
    kept = gone.by_itself and took_s <= lead_s
    if kept:
        message = f"{node} left by itself {lead_s - took_s:.1f} s before the deadline"
    else:
        message = f"{node} was still there when it was reclaimed, {took_s:.1f} s after the notice"
    return Finding(
        oracle=NAME,
        outcome=Outcome.PASS if kept else Outcome.FAIL,
        message=message,
        bound=lead_s,
        measured=took_s,
        unit="s",
        fault=view.index,
        evidence=(published.seq, gone.seq),
    )
