"""Starting again helps: no node fails over and over without a step in between."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "restarts"

LOOP = 3  # failures in a row


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when the lives of one node, or of it and those that stand in for it, ended by
    themselves with an error three times in a row, without a commit of theirs in between."""
    worst: list[h.NodeGone | h.NodeRestart] = []
    for row in _rows(evidence):
        if len(row) > len(worst):
            worst = row
    if not worst:
        return
    loop = len(worst) >= LOOP
    last = worst[-1]
    times = f"{len(worst)} time{'s' if len(worst) > 1 else ''}"
    yield Finding(
        oracle=NAME,
        outcome=Outcome.FAIL if loop else Outcome.PASS,
        message=f"{last.node} failed {times} without a commit, the last with code {last.code}",
        bound=LOOP - 1,
        measured=len(worst),
        unit="failures",
        evidence=tuple(record.seq for record in worst)[:20],
    )


def begins_again(evidence: Evidence, now: float) -> bool:
    """Whether a node that failed was started again, too few times to call it a loop, and has had
    less time than a start may take: it may commit yet, or fail once more."""
    pending: dict[str, float] = {}
    for row in _rows(evidence):
        last = row[-1]
        pending.pop(last.node, None)
        if isinstance(last, h.NodeRestart) and len(row) < LOOP:
            pending[last.node] = last.t
    return any(
        now - t <= evidence.trainer.timeouts.start_s
        and not any(
            record.node == node and record.t > t for record in evidence.of(h.Commit, h.NodeGone)
        )
        for node, t in pending.items()
    )


def _rows(evidence: Evidence) -> Iterator[list[h.NodeGone | h.NodeRestart]]:
    """Failures in a row, up to each failure."""
    origin: dict[str, str] = {}  # of each node, the one that it stands in for in the end
    rows: dict[str, list[h.NodeGone | h.NodeRestart]] = {}
    for record in evidence.of(h.Commit, h.NodeUp, h.NodeRestart, h.NodeGone):
        if isinstance(record, h.Commit):
            if rows:
                rows.pop(origin.get(record.node, record.node), None)
        elif isinstance(record, h.NodeUp):
            replaced = record.replaces or record.node
            origin[record.node] = origin.get(replaced, replaced)
        elif isinstance(record, h.NodeRestart) or (
            isinstance(record, h.NodeGone) and record.by_itself and record.code
        ):
            row = rows.setdefault(origin.get(record.node, record.node), [])
            row.append(record)
            yield list(row)
