from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot.conductor.rundir import RunError
from chaosspot.report.statistics import compare, load_runs, summarise
from chaosspot.verdict import Outcome, Verdict


def run(recovery_s: float, *, schedule: str = "k", outcome: str = "pass", **more: float) -> Verdict:
    return Verdict(
        outcome=Outcome(outcome),
        schedule=schedule,
        trainer="t",
        seed=1,
        findings=(),
        measured={"recovery_s": recovery_s, **more},
    )


def runs(*recoveries: float) -> list[Verdict]:
    return [run(value) for value in recoveries]


def regressions(base: list[Verdict], new: list[Verdict], **options: float) -> set[str]:
    return {change.figure for change in compare(base, new, **options) if change.worse}


def test_a_summary_has_median_worst_and_interval() -> None:
    (summary,) = summarise(runs(1.0, 1.2, 1.1, 9.0, 1.0))
    assert (summary.median, summary.worst, summary.runs) == (1.1, 9.0, 5)
    assert summary.low <= 1.1 <= summary.high


def test_the_worst_goodput_is_the_least() -> None:
    summary = {s.figure: s for s in summarise([run(1.0, goodput=g) for g in (0.5, 0.9, 0.7)])}
    assert summary["goodput"].worst == 0.5


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((1.0, 1.1, 1.05, 1.0), set()),
        ((1.05, 1.15, 1.1, 1.05), set()),  # worse by less than the tolerance
        ((2.0, 2.1, 2.2, 2.05), {"recovery_s"}),
        ((0.5, 0.5, 0.5, 9.0), set()),  # one outlier is no regression
        ((2.0, 2.1), set()),  # too few
    ],
)
def test_a_figure_regresses_beyond_tolerance_and_noise(
    new: tuple[float, ...], expected: set[str]
) -> None:
    assert regressions(runs(1.0, 1.1, 1.05, 1.0), runs(*new)) == expected


def test_goodput_regresses_downwards() -> None:
    base = [run(1.0, goodput=0.9)] * 4
    assert regressions(base, [run(1.0, goodput=0.7)] * 4) == {"goodput"}
    assert regressions(base, [run(1.0, goodput=0.99)] * 4) == set()


def test_fewer_passes_are_a_regression() -> None:
    assert regressions(runs(1.0, 1.0), [run(1.0), run(1.0, outcome="unknown")]) == {"outcome"}


def test_sets_without_a_common_schedule_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match=r"no schedule in common: \['k'\] and \['other'\]"):
        compare(runs(1.0), [run(1.0, schedule="other")])


@given(st.lists(st.floats(0.1, 100.0), min_size=3, max_size=20))
def test_a_set_never_regresses_against_itself(values: list[float]) -> None:
    assert regressions(runs(*values), runs(*values), tolerance=0.0) == set()


def test_runs_are_found_in_their_folder(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-k-1", "20260101T000001Z-k-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "history.jsonl").touch()
        (tmp_path / name / "verdict.json").write_bytes(msgspec.json.encode(run(1.0)))
    (tmp_path / "20260101T000002Z-k-3").mkdir()  # interrupted: it has no verdict
    assert len(load_runs([tmp_path])) == 2
    assert len(load_runs([tmp_path / "20260101T000000Z-k-1"])) == 1
    with pytest.raises(RunError, match="holds no runs"):
        load_runs([tmp_path / "nowhere"])
