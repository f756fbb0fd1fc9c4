"""What the conductor adds to the oracles: what became of its own means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from histories import KILL, Story, loss, undisturbed

from chaosspot import history as h
from chaosspot import toml
from chaosspot.conductor import judge_run
from chaosspot.conductor.judging import GUARDIAN_DIED, verdict_of
from chaosspot.conductor.rundir import LostError, RunError, check_present
from chaosspot.oracles import Evidence
from chaosspot.verdict import Outcome


def written(run: Path, evidence: Evidence, twin: Story | None = None) -> Path:
    run.mkdir(exist_ok=True)
    (run / "schedule.toml").write_text(toml.dumps(evidence.schedule))
    (run / "trainer.toml").write_text(toml.dumps(evidence.trainer))
    for name, records in (("history", evidence.history), ("twin", twin.records if twin else ())):
        if records:
            data = b"".join(h.encode(record) for record in records)
            (run / f"{name}.jsonl").write_bytes(data)
    return run


def stopped(story: Story, reason: str = "decided", log: str = "") -> Story:
    story.tell(h.RunStop, 90.0, reason=reason, log=log)
    return story


def test_a_twin_that_ended_early_is_explained_before_all_else(tmp_path: Path) -> None:
    twin = undisturbed(6)
    twin.gone(7.0, "node-0", by_itself=False)
    twin.gone(8.0, "node-1", by_itself=True, code=3)
    stopped(twin, "nodes were ended from outside")
    evidence = stopped(loss(steps=30)).evidence(KILL, exact="any-world")
    verdict = verdict_of(written(tmp_path / "run", evidence, twin))
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.primary is not None
    assert verdict.primary.oracle == "twin"
    assert verdict.primary.message == (
        "the undisturbed twin ended at step 6 of 30: nodes were ended from outside; "
        "node-0 was ended from outside; node-1 exited with code 3"
    )


def test_a_twin_that_went_far_enough_is_not_mentioned(tmp_path: Path) -> None:
    evidence = stopped(loss(steps=30)).evidence(KILL, exact="any-world")
    verdict = verdict_of(written(tmp_path / "run", evidence, stopped(undisturbed(30), "steps")))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert "twin" not in {finding.oracle for finding in verdict.findings}


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_whose_guardian_died_says_that_and_nothing_else(tmp_path: Path, fails: bool) -> None:
    story = stopped(loss(steps=30) if not fails else undisturbed(4))
    if fails:
        story.kill(5.0, "node-1")
        story.tell(h.Leak, 91.0, what="something")
    story.tell(h.RunStop, 92.0, reason=GUARDIAN_DIED, log="the guardian died: so and so")
    verdict = judge_run(written(tmp_path / "run", story.evidence(KILL, recovery_s=1.0)))
    assert verdict.outcome is Outcome.UNKNOWN
    assert [f.message for f in verdict.findings] == ["the guardian died: so and so"]


def test_judging_alone_writes_nothing(tmp_path: Path) -> None:
    run = written(tmp_path / "run", stopped(loss(steps=30)).evidence(KILL))
    before = sorted(os.listdir(run))
    assert verdict_of(run) == verdict_of(run)
    assert sorted(os.listdir(run)) == before
    judge_run(run)
    assert sorted(os.listdir(run)) == [*before, "verdict.json"]


def test_a_verdict_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    run = written(tmp_path / "run", stopped(loss(steps=30)).evidence(KILL))
    (run / "verdict.json").mkdir()
    before = sorted(os.listdir(run))
    with pytest.raises(IsADirectoryError) as caught:
        judge_run(run)
    assert str(run / "verdict.json") in str(caught.value)
    assert sorted(os.listdir(run)) == before


@pytest.mark.parametrize("missing", ["events", "history.jsonl", "."])
def test_files_of_a_live_run_that_vanish_are_named(tmp_path: Path, missing: str) -> None:
    run = tmp_path / "run"
    (run / "events").mkdir(parents=True)
    (run / "history.jsonl").touch()
    check_present(run)
    check_present(run, OSError("by hand"))
    (run / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(LostError, match="run"):
        check_present(run)


def test_an_error_about_a_file_inside_is_explained_by_its_removal(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").touch()
    inside = FileNotFoundError(2, "No such file", str(tmp_path / "twin" / "history.jsonl"))
    with pytest.raises(LostError, match=r"twin/history\.jsonl"):
        check_present(tmp_path, inside)
    check_present(tmp_path, FileNotFoundError(2, "No such file", "/elsewhere"))
    check_present(tmp_path, RunError("by hand"))
