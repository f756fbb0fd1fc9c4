"""The job is back in time."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.episodes import Episode
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "recovery"


def bound_s(evidence: Evidence) -> float | None:
    """Seconds allowed to recovery: expected by the schedule, else promised, else none."""
    expected = evidence.schedule.expect.recovery_s
    return expected if expected is not None else evidence.promises.recovery_s


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when recovery or catch-up took longer than allowed; without a bound, nothing."""
    expect, promises = evidence.schedule.expect, evidence.promises
    catch_up = expect.catch_up_s if expect.catch_up_s is not None else promises.catch_up_s
    for loss in evidence.episodes:
        if (bound := bound_s(evidence)) is not None:
            yield _finding(loss, evidence, "recovery", loss.recovery_s, bound)
        if catch_up is not None:
            yield _finding(loss, evidence, "catch-up", loss.catch_up_s, catch_up)


def _finding(
    loss: Episode, evidence: Evidence, what: str, measured: float | None, bound: float
) -> Finding:
    commit = loss.recovered if what == "recovery" else loss.caught_up
    if measured is not None:
        late = measured > bound
        how = "longest gap between commits" if loss.announced and what == "recovery" else what
        return Finding(
            oracle=NAME,
            outcome=Outcome.FAIL if late else Outcome.PASS,
            message=f"{how} {measured:.2f} s{', later than allowed' if late else ''}",
            bound=bound,
            measured=measured,
            unit="s",
            fault=loss.faults[0],
            evidence=(commit.seq,) if commit else (),
        )
    start_t = loss.start_t
    waited_s = evidence.end_t - start_t if start_t is not None else 0.0
    return Finding(
        oracle=NAME,
        outcome=Outcome.FAIL if waited_s > bound else Outcome.UNKNOWN,
        message=f"no {what} in {waited_s:.1f} s",
        bound=bound,
        measured=waited_s,
        unit="s",
        fault=loss.faults[0],
    )
