"""Real attacks on real processes of the minimal trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from chaosspot import Verdict, content, schedule, toml, trainers
from chaosspot import history as h
from chaosspot.conductor import judge_run, undisturbed
from chaosspot.conductor.rundir import evidence_of
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import Kill, Notice, Target, Terminate, Trigger
from chaosspot.trainers import Promises, Timeouts, Trainer
from chaosspot.undo import heal_dead_runs
from chaosspot.verdict import Outcome

Attack = Callable[..., Verdict]

SOON = Trigger(at_step=15)
ONE = Target(count=1)


def history(verdict: Verdict) -> tuple[h.Record, ...]:
    return h.read(Path(verdict.run) / "history.jsonl")


def told(verdict: Verdict, kind: type) -> list[Any]:
    return [record for record in history(verdict) if isinstance(record, kind)]


def outcomes(verdict: Verdict) -> dict[str, Outcome]:
    return {finding.oracle: finding.outcome for finding in verdict.findings}


def python(code: str, **fields: Any) -> Trainer:
    """A trainer that is one line of Python."""
    fields.setdefault("timeouts", Timeouts(start_s=3.0, stall_s=2.0, run_s=20.0))
    literal = code.replace("{", "{{").replace("}", "}}")
    return Trainer(name="scripted", command=("{python}", "-c", literal), **fields)


@pytest.mark.parametrize("name", ["kill-and-replace", "short-notice", "cold-start"])
def test_the_healthy_trainer_passes(attack: Attack, name: str) -> None:
    _, plan = schedule.load(f"suites/schedules/{name}")
    verdict = attack(schedule=plan)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert {"effect", "progress", "recovery", "rework", "ledger", "equality"} <= set(
        outcomes(verdict)
    )
    lineage = Lineage(history(verdict)).commits
    twin = Lineage(h.read(Path(verdict.run) / "twin.jsonl")).commits
    assert len(lineage) > 20
    assert all(commit.digest == twin[step].digest for step, commit in lineage.items())


@pytest.mark.long
@pytest.mark.parametrize("name", content.names("suites/sick"))
def test_each_sick_trainer_fails_by_the_finding_it_names(attack: Attack, name: str) -> None:
    trainer = trainers.load(name)
    assert trainer.sick is not None
    _, plan = schedule.load(trainer.sick.schedule)
    verdict = attack(schedule=plan, trainer=trainer)
    assert verdict.outcome is Outcome.FAIL, verdict.findings
    assert verdict.primary is not None
    assert verdict.primary.oracle == trainer.sick.finding
    failed = {f.oracle for f in verdict.findings if f.outcome is Outcome.FAIL}
    assert failed == {trainer.sick.finding, *trainer.sick.follows}
    for finding in verdict.findings:
        if finding.outcome is Outcome.FAIL and finding.oracle in trainer.sick.follows:
            assert trainer.sick.finding in finding.caused_by


def test_a_cold_start_goes_on_from_the_store(attack: Attack) -> None:
    _, plan = schedule.load("suites/schedules/cold-start")
    verdict = attack(schedule=plan)
    stored = [r for r in told(verdict, h.Restore) if r.source == "store"]
    assert stored
    assert all(restore.step > 0 for restore in stored)


def test_a_killed_nodes_flash_goes_with_it_and_a_replacement_has_a_new_name(
    attack: Attack,
) -> None:
    verdict = attack(Kill(on=SOON, target=ONE, replace_after_s=0.2))
    (injected,) = told(verdict, h.FaultInjected)
    (fresh,) = [up for up in told(verdict, h.NodeUp) if up.replaces is not None]
    assert (fresh.node, fresh.replaces) == ("node-3", injected.nodes[0])
    assert not (Path(verdict.run) / "nodes").exists()


def test_a_node_that_reboots_comes_back_with_its_flash(attack: Attack) -> None:
    code = """
import os, time
from chaosspot import probe
mark = os.environ["CHAOSSPOT_FLASH"] + "/mark"
start = int(open(mark).read()) if os.path.exists(mark) else 0
if start:
    probe.emit("restore", step=start, source="local")
for step in range(start + 1, 10**9):
    at = dict(step=step, generation=int(os.environ["CHAOSSPOT_INCARNATION"]), world=1)
    probe.emit("begin", **at)
    time.sleep(0.02)
    with open(mark + ".new", "w") as file:
        file.write(str(step))
    os.replace(mark + ".new", mark)
    probe.emit("commit", **at)
"""
    fault = Kill(on=SOON, target=ONE, keep_flash=True, replace_after_s=0.2)
    trainer = python(code, promises=Promises(rejoins=True, recovery_s=5.0))
    verdict = attack(fault, trainer=trainer, nodes=1)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert [up.node for up in told(verdict, h.NodeUp)] == ["node-0", "node-0"]
    assert [r.source for r in told(verdict, h.Restore)] == ["local"]


def test_a_notice_is_followed_by_the_reclaim_at_its_deadline(attack: Attack) -> None:
    verdict = attack(
        Notice(on=SOON, target=ONE, lead_s=2.5, shutdown_s=0.2), trainer="suites/sick/deaf"
    )
    published, gone = told(verdict, h.FaultEffect)
    assert published.deadline_wall_s == int(published.deadline_wall_s)
    assert 1.5 <= published.deadline_wall_s - published.wall <= 2.5
    assert 0.0 <= gone.wall - published.deadline_wall_s < 2.0


def test_a_node_can_be_taken_before_the_deadline_it_was_told(attack: Attack) -> None:
    verdict = attack(
        Notice(on=SOON, target=ONE, lead_s=60.0, kill_after_s=0.5, shutdown_s=0.1),
        trainer="suites/sick/deaf",
    )
    published, gone = told(verdict, h.FaultEffect)
    assert 0.4 < gone.t - published.t < 5.0


def test_sigterm_with_grace_lets_the_trainer_leave(attack: Attack) -> None:
    verdict = attack(Terminate(on=SOON, target=ONE, grace_s=10.0, replace_after_s=0.2))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert [r.event for r in told(verdict, h.Drain)] == ["drain"]
    assert verdict.measured["rework_steps"] == 0


def test_a_point_holds_the_trainer_until_the_fault_has_acted(attack: Attack) -> None:
    verdict = attack(Kill(on=Trigger(point="snapshot.before-rename", nth=2), replace_after_s=0.2))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (injected,) = told(verdict, h.FaultInjected)
    reached = [p for p in told(verdict, h.Point) if p.t <= injected.t][-1]
    assert injected.nodes == (reached.node,)
    first, second = [s.step for s in told(verdict, h.Snapshot) if s.stage == "durable"][:2]
    assert (first, second) == (5, 15)  # the write of step 10 died with its writer


def test_an_event_triggers_on_its_nth_and_hits_the_node_that_reported_it(attack: Attack) -> None:
    verdict = attack(Kill(on=Trigger(event="snapshot.durable", nth=2), replace_after_s=0.2))
    durable = [s for s in told(verdict, h.Snapshot) if s.stage == "durable"]
    (injected,) = told(verdict, h.FaultInjected)
    assert injected.nodes == (durable[1].node,)


def test_one_seed_resolves_the_same_nodes_and_times(attack: Attack) -> None:
    fault = Kill(on=Trigger(at_s=0.2, jitter_s=0.4), target=Target(count=2), replace_after_s=0.2)
    one, two, other = (attack(fault, seed=seed) for seed in (11, 11, 12))
    resolved = [evidence_of(Path(v.run)).schedule.fault[0].resolved for v in (one, two, other)]
    assert all(resolved)
    assert resolved[0].nodes == resolved[1].nodes
    assert resolved[0].delay_s == resolved[1].delay_s != resolved[2].delay_s
    told_times = [r.injected_s for r in resolved[:2]]
    assert told_times == pytest.approx([0.2 + resolved[0].delay_s] * 2, abs=0.5)


def test_the_schedule_that_a_run_wrote_replays_it(attack: Attack) -> None:
    first = attack(Kill(on=SOON, target=Target(count=2), replace_after_s=0.2), seed=5)
    written = toml.read(Path(first.run) / "schedule.toml", schedule.Schedule)
    again = attack(schedule=written, seed=None)
    assert again.outcome is first.outcome is Outcome.PASS
    assert told(again, h.FaultInjected)[0].nodes == told(first, h.FaultInjected)[0].nodes


def test_a_verdict_can_be_recomputed_from_the_files_alone(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON, target=ONE, replace_after_s=0.2))
    stored = (Path(verdict.run) / "verdict.json").read_bytes()
    (Path(verdict.run) / "verdict.json").unlink()
    again = judge_run(Path(verdict.run))
    assert again == verdict
    assert (Path(verdict.run) / "verdict.json").read_bytes() == stored


def test_the_run_directory_is_complete_and_latest_points_to_it(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON, target=ONE, replace_after_s=0.2))
    run = Path(verdict.run)
    assert {path.name for path in run.iterdir()} == {
        "schedule.toml", "trainer.toml", "environment.json", "history.jsonl", "twin.jsonl",
        "verdict.json", "events", "logs",
    }  # fmt: skip
    assert (run.parent / "latest").resolve() == run
    facts = msgspec.json.decode((run / "environment.json").read_bytes())
    assert facts["packages"]["chaosspot"]


def test_nothing_of_a_run_is_left(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON, target=ONE, replace_after_s=0.2))
    assert outcomes(verdict)["leaks"] is Outcome.PASS
    assert heal_dead_runs() == []
    mine = psutil.Process().children(recursive=True)
    assert [p for p in mine if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_the_store_of_a_run_that_did_not_pass_is_kept(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON, target=ONE), trainer="suites/sick/hanging")
    assert verdict.outcome is Outcome.FAIL
    assert list((Path(verdict.run) / "store").iterdir())


# Trainers that do not behave.


def test_a_trainer_that_exits_at_once_is_unknown_and_its_words_are_shown(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON), trainer=python("import sys; print('no GPU here'); sys.exit(9)"))
    assert verdict.outcome is Outcome.UNKNOWN
    (stop,) = told(verdict, h.RunStop)
    assert stop.reason == "exited"
    assert "no GPU here" in stop.log
    ending = next(f for f in verdict.findings if f.oracle == "ending")
    assert "exited with code 9" in ending.message


def test_a_trainer_that_never_reports_is_unknown(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON), trainer=python("import time; time.sleep(60)"))
    assert verdict.outcome is Outcome.UNKNOWN
    assert told(verdict, h.RunStop)[0].reason == "start timeout"


SILENT_AFTER_20 = """
import time
from chaosspot import probe
for step in range(1, 10**9):
    if step <= 20:
        probe.emit("begin", step=step, generation=1, world=3)
        probe.emit("commit", step=step, generation=1, world=3)
    time.sleep(0.02)
"""


def test_a_trainer_that_stops_reporting_after_the_fault_fails(attack: Attack) -> None:
    trainer = python(SILENT_AFTER_20, promises=Promises(recovery_s=1.0))
    verdict = attack(Kill(on=Trigger(at_step=20), target=ONE), trainer=trainer)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.primary is not None
    assert verdict.primary.oracle == "progress"


def test_a_trigger_that_never_comes_is_unknown(attack: Attack) -> None:
    verdict = attack(Kill(on=Trigger(point="no.such.point")), steps=30)
    assert verdict.outcome is Outcome.UNKNOWN
    effect = next(f for f in verdict.findings if f.oracle == "effect")
    assert "its trigger never came" in effect.message


def test_a_trainer_read_by_patterns_alone_is_attacked_too(attack: Attack) -> None:
    code = (
        "import time\n"
        "for step in range(1, 10**9): print(f'iter {step} loss {1 / step:.4f}'); time.sleep(0.02)"
    )
    trainer = python(
        code,
        patterns=trainers.Patterns(commit=r"iter (?P<step>\d+) loss (?P<loss>[\d.]+)"),
        promises=Promises(recovery_s=5.0),
    )
    verdict = attack(Kill(on=SOON, target=ONE), trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert verdict.measured["recovery_s"] < 5.0


def test_a_point_is_refused_for_a_trainer_read_by_patterns(attack: Attack) -> None:
    trainer = python("pass", patterns=trainers.Patterns(commit=r"(?P<step>\d+)"))
    with pytest.raises(ValueError, match="waits for point 'x', but scripted is read by patterns"):
        attack(Kill(on=Trigger(point="x")), trainer=trainer)


def test_a_line_that_is_no_event_is_kept_and_makes_the_run_unknown(attack: Attack) -> None:
    code = SILENT_AFTER_20.replace(
        "    time.sleep(0.02)",
        "        if step == 3: probe.emit('commit', step='three')\n    time.sleep(0.02)",
    )
    verdict = attack(trainer=python(code), steps=10)
    assert verdict.outcome is Outcome.UNKNOWN
    assert told(verdict, h.Malformed)


def test_a_trainer_that_is_not_exact_makes_equality_unknown(attack: Attack) -> None:
    code = """
import os, time
from chaosspot import probe
for step in range(1, 10**9):
    who = dict(step=step, generation=1, world=3)
    probe.emit("begin", **who)
    probe.emit("commit", **who, digest=os.environ["CHAOSSPOT_CONTROL"])
    time.sleep(0.02)
"""  # the control socket has another path in every run
    verdict = attack(trainer=python(code, promises=Promises(exact="any-world")), steps=10)
    assert outcomes(verdict)["equality"] is Outcome.UNKNOWN
    assert (Path(verdict.run) / "twin-differs.jsonl").exists()


def test_that_two_twins_agree_is_found_out_once(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plan = schedule.load("suites/schedules/kill-and-replace")
    played: list[int] = []
    play = undisturbed._Search._play

    async def counted(search: Any, folder: Path, steps: int) -> bytes:
        played.append(steps)
        return await play(search, folder, steps)

    monkeypatch.setattr(undisturbed._Search, "_play", counted)
    for number in range(2):
        verdict = attack(schedule=plan, trainer="forgetful")
        assert outcomes(verdict)["equality"] is Outcome.FAIL
        assert not (Path(verdict.run) / "twin-differs.jsonl").exists()
        if number == 0:
            assert len(played) in (2, 3)  # the twin, if it was not kept; again; and another
            before = len(played)
    assert len(played) == before
