"""Who takes part in a step agrees on who does, and nobody else's work counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.lineage import process_of
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "membership"

Entry = h.Commit | h.Snapshot  # what enters the lineage or the store


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail where processes disagree on the world of one attempt; and for a commit or durable
    snapshot of a node that was gone, of a process that had left, or of one that training had gone
    on without."""
    findings = [*_worlds(evidence)]
    for kind, entries in _strays(evidence).items():
        first = entries[0]
        findings.append(
            _fail(f"{first.node} {_deed(first)} {kind} ({len(entries)} such reports)", *entries)
        )
    yield from findings
    agreed = sum(any(r.world for r in a.records) for a in evidence.lineage.attempts)
    if agreed and not findings:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"one world in each of {count(agreed, 'attempt')}, and nothing of who was gone",
            measured=agreed,
            unit="attempts",
        )


def _worlds(evidence: Evidence) -> Iterator[Finding]:
    for attempt in evidence.lineage.attempts:
        worlds = {r.world: r for r in reversed(attempt.records) if r.world}
        if len(worlds) > 1:
            named = ", ".join(f"{r.node} says {world}" for world, r in sorted(worlds.items()))
            yield _fail(
                f"the world of step {attempt.step}, generation {attempt.generation}: {named}",
                *worlds.values(),
            )
            return


def _strays(evidence: Evidence) -> dict[str, list[Entry]]:
    """Entries by those who had no part any more, by why not."""
    found: dict[str, list[Entry]] = {}
    for records in evidence.told.values():
        left = False
        held = 0  # the highest step that it had the state of
        saved: set[int] = set()
        for record in records:
            if type(record) is h.Begin:
                continue
            if isinstance(record, (h.Leave, h.Join, h.Restore)):
                left = isinstance(record, h.Leave)
            if isinstance(record, h.Commit) or _durable(record):
                # What it held when it left may still be made durable, once.
                kept = _durable(record) and record.step <= held and record.step not in saved
                if why := _stray(evidence, record, left=left and not kept):
                    found.setdefault(why, []).append(record)
            if _durable(record):
                saved.add(record.step)
            elif isinstance(record, (h.Commit, h.Restore)):
                held = max(held, record.step)
    return found


def _stray(evidence: Evidence, record: Entry, *, left: bool) -> str:
    # The lines of a log have the time at which they were read, which may be after the end.
    if evidence.trainer.patterns is None and evidence.is_late(record):
        return "after the node was gone"
    if left:
        return "after it had left"
    if isinstance(record, h.Snapshot) and _left_behind(evidence, record):
        return "although training had gone on without it"
    return ""


def _left_behind(evidence: Evidence, snapshot: h.Snapshot) -> bool:
    """Whether the process saved a state that is not the lineage's, after training without it had
    committed a later step."""
    lineage = evidence.lineage
    who = process_of(snapshot)
    kept = lineage.commits.get(snapshot.step)
    if kept is not None and who in lineage.attempt_of(kept).processes:
        return False
    last = 0  # the latest attempt that it took part in
    for record in evidence.told[who]:
        if isinstance(record, h.Restore) and record.step == snapshot.step:
            return False
        if isinstance(record, h.Begin | h.Commit) and record.t < snapshot.t:
            last = max(last, lineage.attempt_of(record).first)
    return last > 0 and any(
        commit.step > snapshot.step
        and commit.t < snapshot.t
        and lineage.attempt_of(commit).first > last
        for commit in lineage.commits.values()
    )


def _durable(record: h.Record) -> TypeGuard[h.Snapshot]:
    return isinstance(record, h.Snapshot) and record.stage == "durable"


def _deed(record: Entry) -> str:
    did = "committed" if isinstance(record, h.Commit) else "made durable"
    return f"{did} step {record.step}"


def _fail(message: str, *records: h.Record) -> Finding:
    return Finding(
        oracle=NAME,
        outcome=Outcome.FAIL,
        message=message,
        evidence=tuple(record.seq for record in records)[:20],
    )
