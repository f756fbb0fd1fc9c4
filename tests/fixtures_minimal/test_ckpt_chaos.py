"""What the comparison with ckpt-chaos reads and decides, without ckpt-chaos."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from chaosspot.verdict import Outcome

SCRIPT = Path(__file__).resolve().parents[2] / "suites" / "bench" / "ckpt_chaos.py"
FAIL, PASS, UNKNOWN = Outcome.FAIL, Outcome.PASS, Outcome.UNKNOWN

PRINTED = """1/3 fault-free reference run (records every file event under {out}) ...
3/3 judging

crash point                 newest ok  resume result              weights diff  verdict
no crash (control)                  -  resumed from step None         0.00e+00  PASS
#2 open:saved.json [torn]           -  RAISED ExitCode1                      -  HARD_FAIL

HARD_FAIL: 1  PASS: 1
"""


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ckpt_chaos_bench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ckpt_chaos_bench"] = module  # msgspec looks annotations up there
    spec.loader.exec_module(module)
    return module


def test_their_verdicts_are_counted(bench: ModuleType) -> None:
    assert bench.counts(PRINTED) == {"HARD_FAIL": 1, "PASS": 1}


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "no verdict"),
        ("1/3 fault-free reference run ...", "no verdict"),
        ("HARD_FAIL: 1\nTraceback: 3", "no verdict"),
        (PRINTED.replace("HARD_FAIL\n", "PASS  [DID NOT CRASH]\n"), "did not strike.*#2 open"),
        (PRINTED.replace("HARD_FAIL\n", "PASS  [PLAN DRIFT]\n"), "did not strike"),
    ],
)
def test_what_is_no_verdict_of_theirs_is_not_counted(
    bench: ModuleType, printed: str, why: str
) -> None:
    with pytest.raises(bench.TheirsError, match=why):
        bench.counts(printed, "command not found")


@pytest.mark.parametrize(
    ("theirs", "outcome", "missed"),
    [
        ({"PASS": 9, "HARD_FAIL": 1}, PASS, True),
        ({"PASS": 9, "HARD_FAIL": 1}, UNKNOWN, True),
        ({"PASS": 9, "HARD_FAIL": 1}, FAIL, False),
        ({"PASS": 9, "SILENT_DIVERGENCE": 1}, PASS, True),
        ({"LOST_WORK": 1}, PASS, True),
        ({"PASS": 10}, PASS, False),
        ({"PASS": 10, "HARD_FAIL": 0}, PASS, False),
        ({"PASS": 10}, FAIL, False),
    ],
)
def test_what_they_find_and_we_do_not_is_missed(
    bench: ModuleType, theirs: dict[str, int], outcome: Outcome, missed: bool
) -> None:
    row = bench.Row(
        name="x", theirs=theirs, theirs_s=1.2, ours=bench.Ours(outcome=outcome), ours_s=3.4
    )
    assert row.missed is missed


def test_both_findings_are_shown_side_by_side(bench: ModuleType) -> None:
    ours = bench.Ours(outcome=FAIL, failed=("progress", "restarts"))
    row = bench.Row(
        name="x", theirs={"PASS": 9, "HARD_FAIL": 4}, theirs_s=1.2, ours=ours, ours_s=3.4
    )
    clean = bench.Row(
        name="y", theirs={"PASS": 13}, theirs_s=1.2, ours=bench.Ours(outcome=PASS), ours_s=3.4
    )
    assert bench.table([row, clean])[2:] == [
        "| x | 4 HARD_FAIL, 9 PASS in 1 s | fail (progress, restarts) in 3 s |",
        "| y | 13 PASS in 1 s | pass in 3 s |",
    ]


def test_every_script_can_be_attacked_as_it_is_described(bench: ModuleType) -> None:
    listed = bench.scripts()
    assert [script.name for script in listed[:2]] == ["in-place", "renaming"]
    for script in listed:
        script.plan.check()
        assert script.plan.fault
        assert "{steps}" in script.trainer.command
