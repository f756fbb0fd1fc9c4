import pytest

from chaosspot.verdict import Failed, Finding, Outcome, Unknown, Verdict, conclude


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
