"""Every fault was healed, and nothing of the run outlived it."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "leaks"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail for what was left behind; unknown when the history has no end, or a fault was cut off.

    A run heals what is still on when it ends: what it could not heal is left behind.
    """
    leaks = list(evidence.of(h.Leak))
    for leak in leaks:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.FAIL,
            message=f"left behind: {leak.what}",
            evidence=(leak.seq,),
        )
    unhealed = [v.index for v in evidence.faults if v.injected and not v.healed]
    if evidence.stop is None:
        what = f"fault {unhealed[0]} was not healed" if unhealed else "the history has no end"
        yield Finding(oracle=NAME, outcome=Outcome.UNKNOWN, message=f"{what}: the run was cut off")
    elif unhealed:
        when = f"fault {unhealed[0]} was on when the run ended ({evidence.stop.reason})"
        then = ":" if leaks else "; it was healed then, and"
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message=f"{when}{then} what comes after it was not seen",
            fault=unhealed[0],
            evidence=(evidence.stop.seq,),
        )
    elif not leaks:
        yield Finding(oracle=NAME, outcome=Outcome.PASS, message="nothing of the run is left")
