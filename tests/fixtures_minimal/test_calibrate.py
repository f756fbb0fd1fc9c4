"""What the calibration counts, on runs made by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from chaosspot import content, schedule, trainers
from chaosspot.verdict import Outcome

SCRIPT = Path(__file__).resolve().parents[2] / "suites" / "bench" / "calibrate.py"
FAIL, PASS, UNKNOWN = Outcome.FAIL, Outcome.PASS, Outcome.UNKNOWN


@pytest.fixture(scope="module")
def calibrate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module  # msgspec looks annotations up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("finding", "outcome", "primary", "said", "right", "exact"),
    [
        ("progress", FAIL, "progress", {"progress": FAIL, "recovery": FAIL}, True, True),
        ("progress", FAIL, "progress", {"progress": FAIL}, True, False),
        ("progress", FAIL, "progress", dict.fromkeys(("progress", "ledger"), FAIL), True, False),
        ("progress", FAIL, "ledger", dict.fromkeys(("progress", "ledger"), FAIL), False, False),
        ("progress", UNKNOWN, "progress", {"progress": UNKNOWN}, False, False),
        ("progress", PASS, "", {"progress": PASS}, False, False),
        ("progress", None, "", {}, False, False),
        ("", PASS, "", {"progress": PASS}, True, True),
        ("", UNKNOWN, "progress", {"progress": UNKNOWN}, False, False),
        ("", FAIL, "progress", {"progress": FAIL}, False, False),
    ],
)
def test_an_attack_is_right_by_its_primary_finding(
    calibrate: ModuleType,
    finding: str,
    outcome: Outcome | None,
    primary: str,
    said: dict[str, Outcome],
    right: bool,
    exact: bool,
) -> None:
    follows = ("recovery",) if finding else ()
    case = calibrate.Case(trainer="t", schedule="s", finding=finding, follows=follows)
    run = calibrate.Run(case=case, seed=1, outcome=outcome, primary=primary, said=said)
    assert (run.right, run.exact) == (right, exact)


def test_each_oracle_is_counted_where_it_had_to_fail_and_where_it_must_not(
    calibrate: ModuleType,
) -> None:
    sick = calibrate.Case(trainer="s", schedule="x", finding="progress", follows=("recovery",))
    well = calibrate.Case(trainer="w", schedule="x")

    def run(case: Any, **said: Outcome) -> Any:
        return calibrate.Run(case=case, seed=1, said=said)

    runs = [
        run(sick, progress=FAIL, recovery=FAIL, ledger=FAIL),
        run(sick, progress=UNKNOWN, recovery=FAIL),
        run(well, progress=PASS, recovery=FAIL, ledger=PASS),
        run(well, progress=PASS, recovery=UNKNOWN),
    ]
    header, *lines = calibrate.by_oracle(runs)
    told = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    shown = ("sensitivity", "false alarms", "unknown")
    assert [told["progress"][key] for key in shown] == ["1/2", "0/2", "1/4"]
    assert [told["recovery"][key] for key in shown] == ["2/2", "1/2", "1/4"]
    assert [told["ledger"][key] for key in shown] == ["-", "0/1", "0/2"]
    assert [told["leaks"][key] for key in shown] == ["-", "-", "0/0"]


@pytest.mark.parametrize(
    ("hits", "tries", "bound"), [(10, 10, 0.787), (5, 10, 0.269), (0, 10, 0.0), (30, 30, 0.917)]
)
def test_the_bound_of_a_rate_is_wilsons(
    calibrate: ModuleType, hits: int, tries: int, bound: float
) -> None:
    assert calibrate.lowest(hits, tries) == pytest.approx(bound, abs=0.001)


def test_every_sick_trainer_and_each_healthy_pair_is_a_case_once(calibrate: ModuleType) -> None:
    sick = content.names("suites/sick")
    listed = calibrate.cases(sick)
    assert [case.trainer for case in listed if case.finding] == sick
    healthy = [(case.trainer, case.schedule) for case in listed if not case.finding]
    assert len(healthy) == len(set(healthy))
    assert {trainer for trainer, _ in healthy} == {
        "bucket",
        "minimal",
        "reference",
        "script",
        "sharded",
        "solo",
    }


def test_a_healthy_trainer_is_attacked_by_all_it_is_not_limited_by(calibrate: ModuleType) -> None:
    listed = calibrate.catalogue("minimal", "processes")
    schedules = {case.schedule for case in listed}
    limits = {limit.schedule for limit in trainers.load("minimal").limit}
    plans = {name: schedule.load(name)[1] for name in content.names("faults")}
    unsuited = {
        name
        for name, plan in plans.items()
        if plan.cluster.store != "directory" or any(f.NEEDS_ISOLATION for f in plan.fault)
    } - limits
    assert schedules | limits | unsuited == set(content.names("faults"))
    assert not schedules & unsuited
    assert not schedules & limits
    assert all(case.trainer == "minimal" and not case.finding for case in listed)


def test_each_attack_is_made_on_the_backend_that_was_asked_for(
    calibrate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def refuse(plan: str, **more: Any) -> None:
        asked.append({"schedule": plan, **more})
        raise RuntimeError("no")

    monkeypatch.setattr(calibrate.chaosspot, "attack", refuse)
    case = calibrate.Case(trainer="t", schedule="s")
    run = calibrate.attack(case, 3, tmp_path, "containers")
    assert "RuntimeError: no" in run.error
    (told,) = asked
    assert (told["schedule"], told["trainer"], told["seed"]) == ("s", "t", 3)
    assert told["cluster"] == "containers"
