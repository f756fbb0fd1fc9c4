"""Every micro-shard of every step of the lineage was applied exactly once."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "ledger"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail on a multiplicity other than promised; unknown where it was not reported."""
    promise = evidence.promises.samples
    if promise == "none":
        return
    lineage = evidence.lineage
    wrong = [
        commit
        for commit in lineage.commits.values()
        if commit.samples is not None
        and any(n < 1 or (n > 1 and promise == "exactly-once") for n in commit.samples)
    ]
    for commit in wrong[:3]:
        shards = [i for i, n in enumerate(commit.samples or ()) if n != 1]
        yield Finding(
            oracle=NAME,
            outcome=Outcome.FAIL,
            message=(
                f"step {commit.step}: micro-shard {shards[0]} was applied "
                f"{(commit.samples or ())[shards[0]]} times ({len(wrong)} such steps in all)"
            ),
            bound=1,
            measured=(commit.samples or ())[shards[0]],
            unit="times",
            evidence=(commit.seq,),
        )
    silent = [c.step for c in lineage.commits.values() if c.samples is None]
    unseen = sorted({*silent, *lineage.holes})
    if unseen:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message=f"{count(len(unseen), 'step')} without samples, the first is {unseen[0]}",
            measured=len(unseen),
            unit="steps",
        )
    elif not wrong and lineage.commits:
        last = max(lineage.commits)
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message="every micro-shard of "
            f"{count(len(lineage.commits), 'step')} applied as promised",
            measured=len(lineage.commits),
            unit="steps",
            evidence=(lineage.commits[last].seq,),
        )
