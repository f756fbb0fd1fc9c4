"""The trainer's own reports can be read."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "reports"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Unknown when a line of the trainer's was no event: what it said is missing."""
    bad = list(evidence.of(h.Malformed))
    if bad:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message=f"{bad[0].node}: {bad[0].reason}: {bad[0].line!r} ({len(bad)} such lines)",
            measured=len(bad),
            unit="lines",
            evidence=tuple(record.seq for record in bad[:20]),
        )
