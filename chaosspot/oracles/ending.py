"""The run went as far as it had to."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "ending"

_WHOLE = ("decided", "steps", "finished")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Unknown when the run was cut short: by a limit, by Ctrl-C, or by the trainer's own end."""
    stop = evidence.stop
    if stop is None:
        yield Finding(oracle=NAME, outcome=Outcome.UNKNOWN, message="the history has no end")
    elif stop.reason not in _WHOLE:
        codes = [
            f"{gone.node} exited with code {gone.code}"
            for gone in evidence.of(h.NodeGone)
            if gone.by_itself and gone.code
        ]
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message="; ".join([f"the run ended early: {stop.reason}", *codes[:3]]),
            evidence=(stop.seq,),
        )
