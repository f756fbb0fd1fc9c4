"""Exit codes tell the truth: 0 for work that is done or handed over, another for what failed."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.schedule import Notice, Terminate
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "exits"

_GOOD = ("finished", "drained")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Only ends of workers by themselves, and only of trainers that report begins or exits
    through the probe.

    Fail for code 0 of a node that training needed, and for another code of a node all ranks of
    which had said that they finished or drained.
    """
    silent = not evidence.begins and not any(evidence.of(h.Exit))
    if silent or evidence.trainer.patterns is not None:
        return
    gone = [end for end in evidence.of(h.NodeGone) if end.by_itself and end.code is not None]
    everyone: list[h.NodeGone | h.NodeRestart] = [*evidence.of(h.NodeRestart), *gone]
    ends = [end for end in everyone if end.node in evidence.workers]
    lies = [finding for end in ends if (finding := _lie(evidence, end)) is not None]
    yield from lies
    if ends and not lies:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"{count(len(ends), 'node')} ended with the code that fits",
            measured=len(ends),
            unit="nodes",
            evidence=tuple(end.seq for end in ends)[:20],
        )


def _lie(evidence: Evidence, end: h.NodeGone | h.NodeRestart) -> Finding | None:
    life = _life(evidence, end)
    reasons = [record.reason for record in life if isinstance(record, h.Exit)]
    good = [reason for reason in reasons if reason in _GOOD]
    if end.code and len(good) == len(reasons) >= evidence.trainer.ranks_per_node:
        message = f"{end.node} reported that it {good[-1]}, and ended with code {end.code}"
    elif end.code == 0 and (why := _why_needed(evidence, end, life, reasons)):
        message = f"{end.node} ended with code 0 {why}"
    else:
        return None
    return Finding(
        oracle=NAME,
        outcome=Outcome.FAIL,
        message=message,
        measured=end.code,
        evidence=(*(record.seq for record in life[-1:]), end.seq),
    )


def _life(evidence: Evidence, end: h.NodeGone | h.NodeRestart) -> list[h.Record]:
    """What the processes reported whose end this is."""
    return [
        record
        for records in evidence.told.values()
        if evidence.end_of(records[0]) is end
        for record in records
    ]


def _why_needed(
    evidence: Evidence, end: h.NodeGone | h.NodeRestart, life: list[h.Record], reasons: list[str]
) -> str:
    """Why training was not at its end for a node, as far as that was seen; else empty."""
    bad = [reason for reason in reasons if reason not in _GOOD]
    if bad:
        return f"although it reported its exit as {bad[0]!r}"
    announced = any(
        end.node in view.nodes and isinstance(view.spec, Notice | Terminate)
        for view in evidence.faults
    )
    if reasons or announced or any(isinstance(r, h.Drain | h.Leave) for r in life):
        return ""
    if any(evidence.of(h.Exit)):
        return "and reported no exit, as others did"
    begins = [(r.rank, r.step, r.generation) for r in life if isinstance(r, h.Begin)]
    commits = {(r.rank, r.step, r.generation) for r in life if isinstance(r, h.Commit)}
    if begins and begins[-1] not in commits:
        return f"in the middle of step {begins[-1][1]}"
    reached = max((step for _, step, _ in commits), default=0)
    if any(c.t > end.t and c.step > reached for c in evidence.commits):
        return f"after step {reached}, and training went on without it"
    return ""
