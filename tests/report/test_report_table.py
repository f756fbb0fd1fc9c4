"""A verdict as people see it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from chaosspot.report.table import print_summary, print_verdict
from chaosspot.verdict import Finding, Outcome, Verdict


def printed(*verdicts: Verdict) -> str:
    file = io.StringIO()
    console = Console(file=file, width=200)
    for verdict in verdicts:
        print_verdict(verdict, console)
    print_summary(verdicts, console)
    return file.getvalue()


def verdict(**fields: object) -> Verdict:
    finding = Finding(
        oracle="rework", outcome=Outcome.FAIL, message="[b]x[/b] happened", measured=1, unit="steps"
    )
    given = {
        "outcome": Outcome.FAIL,
        "schedule": "[red]s",
        "trainer": "[/bold]t",
        "seed": 1,
        "findings": (finding,),
        "measured": {"steps": 1, "rework_steps": 1, "recovery_s": -0.0001, "billed_node_s": 1.0},
        "replay": "chaosspot replay '[x]'",
    }
    return Verdict(**{**given, **fields})


def test_nothing_from_a_file_is_markup() -> None:
    said = printed(verdict())
    assert "fail  [red]s on [/bold]t, seed 1" in said
    assert "because of rework: [b]x[/b] happened" in said
    assert "replay: chaosspot replay '[x]'" in said


def test_a_name_stays_on_its_line() -> None:
    assert "fail  a\\nb on" in printed(verdict(schedule="a\nb"))


def test_one_is_one_and_there_is_no_minus_nought() -> None:
    said = printed(verdict())
    assert "rework 1 step," in said
    assert "recovery 0.00 s" in said
    assert "of 1 node-second, 1 step\n" in said
    assert "1 steps" not in said


@pytest.mark.parametrize(("steps", "words"), [(0, "0 steps"), (1_234_567, "1234567 steps")])
def test_other_numbers_are_plural(steps: int, words: str) -> None:
    assert f", {words}\n" in printed(verdict(measured={"steps": steps}))
