"""What was reported durable is what a cold start comes back with."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.cold import ColdStart
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "durability"

_WELL_S = 1.0  # a report so long before the end of all was not overtaken by it


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when nobody was left who held the state and training went on from an older step than
    one reported durable a second or more before: that snapshot was lost, or passed over."""
    for cold in evidence.cold_starts:
        yield from _after(cold)


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
