"""What was reported durable is in the store, and it is what a cold start comes back with."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.claims import claims, left_uploads, untrue, visible_too_early
from chaosspot.oracles.cold import ColdStart
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "durability"

_WELL_S = 1.0  # a report so long before the end of all was not overtaken by it


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when nobody was left who held the state and training went on from an older step than
    one reported durable a second or more before: that snapshot was lost, or passed over.

    Where the run's store is an object store, also for what its own record contradicts: a snapshot
    said to be durable that was not there whole and unchanged until a newer one was, one that could
    be seen before it was complete, and an upload that was left behind."""
    for cold in evidence.cold_starts:
        yield from _after(cold)
    yield from _in_store(evidence)


def _in_store(evidence: Evidence) -> Iterator[Finding]:
    log = evidence.store
    made = claims(evidence)
    if log.found is None:
        return
    kept = evidence.trainer.object_store
    complete = kept.complete if kept is not None else None
    wrongs = [
        list(untrue(log, made)),
        list(visible_too_early(log, complete)) if complete is not None else [],
        list(left_uploads(evidence, log, made)),
    ]
    for wrong in filter(None, wrongs):
        (message, _), more = wrong[0], len(wrong) - 1
        yield Finding(
            oracle=NAME,
            outcome=Outcome.FAIL,
            message=f"{message}, and {more} more of that sort" if more else message,
            bound=0,
            measured=len(wrong),
            evidence=tuple(seq for _, seqs in wrong for seq in seqs)[:20],
        )
    if made and not any(wrongs):
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"the store had all of {count(len(made), 'snapshot')} said to be durable",
            measured=len(made),
            unit="snapshots",
            evidence=tuple(claim.seq for claim in made)[-20:],
        )


def _after(cold: ColdStart) -> Iterator[Finding]:
    newest = cold.newest(cold.last.t - _WELL_S)
    if newest is None or cold.first is None:
        return
    resumed = cold.first.step - 1
    early_s = cold.last.t - newest.t
    kept = resumed >= newest.step
    message = (
        f"step {newest.step} was reported durable {early_s:.1f} s before the last node that held "
        f"the state was gone, and training went on from step {resumed}"
    )
    yield Finding(
        oracle=NAME,
        outcome=Outcome.PASS if kept else Outcome.FAIL,
        message=message,
        bound=0,
        measured=max(0, newest.step - resumed),
        unit="steps",
        evidence=(newest.seq, *(restore.seq for restore in cold.restores), cold.first.seq),
    )
