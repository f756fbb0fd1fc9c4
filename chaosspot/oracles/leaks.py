"""Every fault was healed, and nothing of the run outlived it."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "leaks"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail for what was left behind; unknown when the history has no end."""
    leaks = list(evidence.of(h.Leak))
    for leak in leaks:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.FAIL,
            message=f"left behind: {leak.what}",
            evidence=(leak.seq,),
        )
    unhealed = [v.index for v in evidence.faults if v.injected and not v.healed]
    if evidence.stop is None or unhealed:
        what = f"fault {unhealed[0]} was not healed" if unhealed else "the history has no end"
        yield Finding(oracle=NAME, outcome=Outcome.UNKNOWN, message=f"{what}: the run was cut off")
    elif not leaks:
        yield Finding(oracle=NAME, outcome=Outcome.PASS, message="nothing of the run is left")
