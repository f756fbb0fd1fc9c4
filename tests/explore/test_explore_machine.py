"""Rules plan schedules; what they planned is attacked with once, when a case ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from chaosspot.explore import SpotMachine, attacking
from chaosspot.schedule import Schedule
from chaosspot.verdict import Failed, Finding, Outcome, Verdict

FEW = settings(attacking, max_examples=20, stateful_step_count=4, database=None, derandomize=True)


def verdict(outcome: Outcome) -> Verdict:
    found = Finding(oracle="progress", outcome=outcome, message="made up")
    return Verdict(outcome=outcome, schedule="s", trainer="t", seed=0, findings=(found,))


def test_every_case_is_one_attack_with_a_schedule_that_can_be_run() -> None:
    plans: list[Schedule] = []

    def attack(plan: Schedule, **_: Any) -> Verdict:
        plan.check()
        plans.append(plan)
        return verdict(Outcome.PASS)

    class Spot(SpotMachine):
        pass

    Spot.attack = staticmethod(attack)
    run_state_machine_as_test(Spot, settings=FEW)
    assert plans
    assert all(1 <= len(plan.fault) <= 4 for plan in plans)
    kinds = {fault.kind for plan in plans for fault in plan.fault}
    assert kinds == {"kill", "notice", "pause"}
    gone = [sum(f.TAKES_NODES and f.replace_after_s is None for f in p.fault) for p in plans]
    assert max(gone) < 3


def test_a_case_that_fails_shows_its_schedule() -> None:
    def attack(plan: Schedule, **_: Any) -> Verdict:
        bad = any(fault.kind == "notice" for fault in plan.fault)
        return verdict(Outcome.FAIL if bad else Outcome.PASS)

    class Spot(SpotMachine):
        pass

    Spot.attack = staticmethod(attack)
    with pytest.raises(Failed) as failed:
        run_state_machine_as_test(Spot, settings=FEW)
    notes = "\n".join(failed.value.__notes__)
    assert 'kind = "notice"' in notes


def test_nothing_starts_before_a_case_ends() -> None:
    assert SpotMachine().schedule() is None
