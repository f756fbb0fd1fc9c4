import pytest

from chaosspot.oracles import ORACLES
from chaosspot.verdict import _CAUSES, Failed, Finding, Outcome, Unknown, Verdict, conclude


def finding(oracle: str, outcome: str) -> Finding:
    return Finding(oracle=oracle, outcome=Outcome(outcome), message="m")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "unknown"], "unknown"),
        (["unknown", "fail", "pass"], "fail"),
        ([], "unknown"),
    ],
)
def test_fail_goes_before_unknown_before_pass(outcomes: list[str], expected: str) -> None:
    outcome, _ = conclude(finding("x", one) for one in outcomes)
    assert outcome == expected


def verdict(*findings: Finding) -> Verdict:
    outcome, explained = conclude(findings)
    return Verdict(outcome=outcome, schedule="s", trainer="t", seed=1, findings=explained)


def test_the_primary_finding_is_the_worst_that_follows_from_no_other() -> None:
    primary = verdict(
        finding("effect", "unknown"), finding("recovery", "fail"), finding("progress", "fail")
    ).primary
    assert primary is not None
    assert primary.oracle == "progress"


def test_a_pass_has_no_primary_finding() -> None:
    assert verdict(finding("effect", "pass")).primary is None


def test_a_verdict_checks_itself() -> None:
    verdict(finding("effect", "pass")).check()
    with pytest.raises(Failed, match="s on t, seed 1: fail, because of progress: m"):
        verdict(finding("progress", "fail")).check()
    with pytest.raises(Unknown, match="unknown, because of effect"):
        verdict(finding("effect", "unknown")).check()


def test_no_cause_follows_from_what_it_explains() -> None:
    """Causes are oracles, and there is no way round in a circle."""
    assert set(_CAUSES) <= set(ORACLES)
    for oracle, causes in _CAUSES.items():
        assert set(causes) <= set(ORACLES), oracle
        seen, due = set(), list(causes)
        while due:
            cause = due.pop()
            seen.add(cause)
            due += [more for more in _CAUSES.get(cause, ()) if more not in seen]
        assert oracle not in seen


@pytest.mark.parametrize(
    ("failed", "primary"),
    [
        (["progress", "recovery", "rejoin", "restarts"], "restarts"),
        (["rejoin", "exits"], "exits"),
        (["rework", "snapshots", "durability"], "durability"),
        (["rework", "notice"], "notice"),
        (["equality", "snapshots"], "snapshots"),
        (["ledger", "equality", "membership"], "membership"),
        (["durability", "membership"], "membership"),
    ],
)
def test_what_is_more_basic_is_primary(failed: list[str], primary: str) -> None:
    found = verdict(*(finding(oracle, "fail") for oracle in failed))
    assert found.primary is not None
    assert found.primary.oracle == primary
    assert all(f.caused_by for f in found.findings if f.oracle != primary)
