"""What attacks say about a job, and what of it carries over to another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from histories import KILL, NOTICE, Story, ended, loss, undisturbed

from chaosspot import history as h
from chaosspot import toml
from chaosspot.conductor.rundir import RunError
from chaosspot.economics.measured import Measured, RunFigures, figures_of, read_runs, together
from chaosspot.economics.scaling import JobSize, costs_of, job_size
from chaosspot.oracles import Evidence, judge
from chaosspot.schedule import Grow, Trigger
from chaosspot.verdict import Outcome, Verdict


def verdict_of(evidence: Evidence) -> Verdict:
    outcome, findings, measured = judge(evidence)
    return Verdict(
        outcome=outcome, schedule="s", trainer="t", seed=1, findings=findings, measured=measured
    )


def figures(story: Story, *faults: Any, **given: Any) -> RunFigures:
    evidence = story.evidence(*faults, **given)
    return figures_of(evidence, verdict_of(evidence), name="a run")


def killed(recovery_s: float = 3.0, **changes: Any) -> RunFigures:
    """Two nodes; one is killed at 5.1 and step 6 is committed ``recovery_s`` later."""
    seen = figures(
        ended(loss(recovery_s=recovery_s), 20.0),
        KILL,
        twin=undisturbed(12),
        snapshot_every_steps=5,
        peers_hold_state=True,
    )
    return msgspec.structs.replace(seen, **({"outcome": Outcome.PASS} | changes))


def test_a_restart_is_the_wait_for_the_next_commit_less_its_step() -> None:
    seen = killed()
    assert seen.restart_s == pytest.approx((3.0 - 1.0,))
    assert (seen.nodes, seen.steps, seen.events, seen.lost_steps) == (2, 10, 1, 1)
    assert seen.step_s == pytest.approx(1.0)


def test_the_uninterrupted_run_is_the_twins_to_the_same_step() -> None:
    seen = killed()
    assert seen.run_node_s == pytest.approx(2 * 10.0)
    assert seen.billed_node_s == pytest.approx(5.1 + 20.0)
    assert sum(seen.split_node_s.values()) == pytest.approx(seen.billed_node_s, abs=0.01)


def test_without_a_twin_nothing_is_made_up() -> None:
    seen = figures(ended(loss(), 20.0), KILL)
    assert seen.run_node_s is None
    found = together([msgspec.structs.replace(seen, outcome=Outcome.PASS)])
    assert found.rework is None
    assert "no twin" in found.run_source


def test_a_stall_is_from_the_commit_to_the_copied_snapshot() -> None:
    story = undisturbed(5)
    story.saved(5.25, 5, "node-0", "staged", bytes=4_000_000)
    story.saved(5.9, 5, "node-0", "local", bytes=4_000_000)
    story.saved(5.9, 4, "node-1", "staged", bytes=4_000_000)  # not of the step just committed
    seen = figures(ended(story, 8.0))
    assert seen.stall_s == pytest.approx((0.25,))
    assert seen.state_bytes == 4_000_000


def test_nodes_that_a_fault_added_interrupt_nothing() -> None:
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind="grow", nodes=("node-2",))
    story.up(5.2, "node-2")
    story.tell(h.FaultEffect, 5.2, "node-2", fault=0, what="up")
    story.step(6.5, 6, "node-0", "node-1", "node-2")
    seen = figures(ended(story, 8.0), Grow(on=Trigger(at_s=1.0), count=1))
    assert (seen.nodes, seen.events, seen.restart_s) == (2, 0, ())


def noticed(*, by_itself: bool = True, gone_t: float = 6.4, repeated: bool = False) -> RunFigures:
    story = undisturbed(5)
    story.tell(h.NoticeSeen, 5.6, "node-1", provider="aws", action="terminate")
    story.notice(5.1, "node-1", lead_s=30.0, gone_t=gone_t, by_itself=by_itself)
    for number, step in enumerate(range(5 if repeated else 6, 9)):
        story.step(gone_t + 1.0 + number, step, "node-0", generation=2)
    return figures(ended(story, 60.0), NOTICE)


def test_a_notice_is_kept_in_time_and_at_no_cost_of_work() -> None:
    kept = noticed()
    assert (kept.notices, kept.notices_kept) == (1, 1)
    assert kept.flush_s == pytest.approx((0.8,))
    assert noticed(by_itself=False).notices_kept == 0
    assert noticed(gone_t=40.0).notices_kept == 0
    assert noticed(repeated=True).notices_kept == 0


def test_attacks_together_are_medians_and_the_worst_restart() -> None:
    found = together([killed(2.0), killed(3.0), killed(9.0)])
    assert (found.runs, found.events) == (3, 3)
    assert (found.restart_s, found.worst_restart_s) == pytest.approx((2.0, 8.0))
    assert found.lost_steps == 1
    assert found.rework == pytest.approx((3 * 25.1 - 60) / 60)
    assert (
        found.run_source == "the undisturbed twins of 3 attacks on trainer, to the same step"
        or ("the undisturbed twins of 3" in found.run_source)
    )


def test_attacks_that_did_not_pass_are_left_out_and_counted() -> None:
    failed = killed(50.0, outcome=Outcome.FAIL)
    found = together([killed(3.0), failed])
    assert (found.runs, found.left_out, found.worst_restart_s) == (1, 1, pytest.approx(2.0))
    with pytest.raises(RunError, match=r"none of 1 run of .* passed"):
        together([failed])


def test_attacks_on_several_trainers_do_not_mix() -> None:
    with pytest.raises(RunError, match="runs of several trainers: mine, yours"):
        together([killed(trainer="yours"), killed(trainer="mine")])


def test_a_run_in_which_nothing_was_interrupted_measures_nothing() -> None:
    calm = figures(ended(undisturbed(10), 12.0))
    with pytest.raises(RunError, match="nothing was interrupted"):
        together([msgspec.structs.replace(calm, outcome=Outcome.PASS)])


def write_run(run: Path, evidence: Evidence) -> None:
    run.mkdir(parents=True)
    (run / "history.jsonl").write_bytes(b"".join(map(h.encode, evidence.history)))
    (run / "twin.jsonl").write_bytes(b"".join(map(h.encode, evidence.twin or ())))
    (run / "schedule.toml").write_text(toml.dumps(evidence.schedule))
    (run / "trainer.toml").write_text(toml.dumps(evidence.trainer))
    passed = msgspec.structs.replace(verdict_of(evidence), outcome=Outcome.PASS)
    (run / "verdict.json").write_bytes(msgspec.json.encode(passed))


def test_run_directories_are_read_one_by_one_or_by_the_folder(tmp_path: Path) -> None:
    story = ended(loss(recovery_s=3.0), 20.0)
    evidence = story.evidence(KILL, twin=undisturbed(12), snapshot_every_steps=5)
    for number in (1, 2):
        write_run(tmp_path / "runs" / f"2026010{number}T000000Z-s-1", evidence)
    found = read_runs([tmp_path / "runs"])
    assert (found.runs, found.restart_s) == (2, pytest.approx(2.0))
    both = [tmp_path / "runs", tmp_path / "runs" / "20260101T000000Z-s-1"]
    assert read_runs(both).runs == 2  # one of them is named twice
    one = read_runs([tmp_path / "runs" / "20260101T000000Z-s-1"])
    assert (one.runs, one.snapshot_every_steps, one.peers_hold_state) == (1, 5, False)


def test_runs_that_were_cut_short_are_counted_as_left_out(tmp_path: Path) -> None:
    story = ended(loss(recovery_s=3.0), 20.0)
    evidence = story.evidence(KILL, twin=undisturbed(12), snapshot_every_steps=5)
    for number in (1, 2):
        write_run(tmp_path / f"2026010{number}T000000Z-s-1", evidence)
    (tmp_path / "20260101T000000Z-s-1" / "verdict.json").unlink()
    found = read_runs([tmp_path])
    assert (found.runs, found.left_out) == (1, 1)
    (tmp_path / "20260102T000000Z-s-1" / "verdict.json").unlink()
    with pytest.raises(RunError, match="holds no runs with a verdict, only 2 runs without one"):
        read_runs([tmp_path])


def test_a_verdict_with_numbers_that_are_none_is_named(tmp_path: Path) -> None:
    evidence = ended(loss(recovery_s=3.0), 20.0).evidence(KILL, twin=undisturbed(12))
    run = tmp_path / "run"
    write_run(run, evidence)
    verdict = msgspec.structs.replace(verdict_of(evidence), measured={"rework_steps": "many"})
    (run / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    with pytest.raises(RunError, match=r"verdict\.json' is damaged: .*many"):
        read_runs([run])


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r".* holds no runs"):
        read_runs([tmp_path])


def measured(**changes: Any) -> Measured:
    seen = together([killed(3.0)])
    given = {
        "stall_s": 0.01,
        "state_bytes": 10_000_000,
        "join_s": 4.0,
        "notices": 4,
        "notices_kept": 3,
        "flush_s": 0.5,
    }
    return msgspec.structs.replace(seen, **(given | changes))


def test_the_attacked_job_costs_what_was_measured() -> None:
    costs = costs_of(measured(), noticed=0.5)
    assert costs.interval_s == pytest.approx(5.0)
    assert (costs.stall_s, costs.restart_s, costs.join_s) == pytest.approx((0.01, 2.0, 4.0))
    assert costs.lost_s == pytest.approx(1.0)
    assert (costs.flush_s, costs.flushed) == pytest.approx((0.5, 0.375))
    assert costs_of(measured()).flushed == 0
    assert costs_of(measured(peers_hold_state=False)).lost_s is None


def test_a_larger_job_copies_more_and_loses_longer_steps() -> None:
    size = JobSize(state_bytes=20e9, bandwidth_bytes_per_s=4e9, step_s=8.0)
    costs = costs_of(measured(), size=size)
    assert costs.stall_s == pytest.approx(5.0)
    assert costs.restart_s == pytest.approx(2.0 - 0.01 + 5.0)
    assert costs.join_s == pytest.approx(4.0 - 0.01 + 5.0)
    assert costs.lost_s == pytest.approx(8.0)
    assert costs.interval_s == pytest.approx(40.0)


def test_a_job_of_the_attacked_ones_size_costs_the_same() -> None:
    seen = measured()
    bandwidth = seen.bandwidth_bytes_per_s
    assert bandwidth is not None
    assert seen.state_bytes is not None
    size = JobSize(
        state_bytes=seen.state_bytes, bandwidth_bytes_per_s=bandwidth, step_s=seen.step_s
    )
    same, plain = costs_of(seen, size=size), costs_of(seen)
    for name in ("stall_s", "restart_s", "join_s", "lost_s", "interval_s", "flush_s"):
        assert getattr(same, name) == pytest.approx(getattr(plain, name))


def test_seconds_are_never_extrapolated_from_a_part_of_the_figures() -> None:
    assert job_size(state_bytes=None, bandwidth_bytes_per_s=None, step_s=None) is None
    with pytest.raises(ValueError, match=r"bandwidth_bytes_per_s = None, step_s = 2\.0: .* three"):
        job_size(state_bytes=1e9, bandwidth_bytes_per_s=None, step_s=2.0)
    with pytest.raises(ValueError, match=r"step_s = 0\.0: above 0"):
        job_size(state_bytes=1e9, bandwidth_bytes_per_s=1e9, step_s=0.0)


def test_a_job_that_does_not_say_when_it_snapshots_is_asked() -> None:
    with pytest.raises(ValueError, match="does not say after how many steps"):
        costs_of(measured(snapshot_every_steps=None))
    assert costs_of(measured(snapshot_every_steps=None), interval_s=60).interval_s == 60
