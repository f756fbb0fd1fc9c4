"""What a trainer was doing when a fault struck."""

from __future__ import annotations

import pytest
from histories import Story

from chaosspot import history as h
from chaosspot.explore.ground import ground_of
from chaosspot.explore.journal import Entry
from chaosspot.explore.learned import learned
from chaosspot.explore.phases import PHASES, phases
from chaosspot.explore.told import coverage
from chaosspot.explore.trial import Strike, Trial, key_of
from chaosspot.explore.trying import trial_of
from chaosspot.schedule import Kill, Notice, Schedule, Target, Trigger
from chaosspot.verdict import Finding, Outcome, Verdict

NODE = "node-0"


def struck(story: Story, t: float, kind: str = "kill") -> tuple[str, ...]:
    story.tell(h.FaultInjected, t, fault=0, kind=kind, nodes=(NODE,), step=3)
    return phases(story.records)[0]


def passed(story: Story, t: float, name: str, event: str = "passed") -> None:
    if event == "point":
        story.tell(h.Point, t, NODE, name=name)
    else:
        story.tell(h.Other, t, NODE, name="passed", extra={"name": name})


@pytest.mark.parametrize("event", ["passed", "point"])
@pytest.mark.parametrize(
    ("point", "phase"),
    [
        ("snapshot.before-rename", "write"),
        ("upload.before-manifest", "upload"),
        ("restore.before-load", "restore"),
        ("snapshot.after-rename", "calm"),
        ("step.after-commit", "calm"),
    ],
)
def test_a_point_says_what_comes_next(event: str, point: str, phase: str) -> None:
    story = Story()
    story.up(0.0, NODE)
    story.commit(1.0, 1, NODE)
    passed(story, 2.0, point, event)
    assert struck(story, 2.1) == (phase,)


def test_a_write_ends_with_what_was_written() -> None:
    story = Story()
    story.up(0.0, NODE)
    passed(story, 1.0, "snapshot.before-rename")
    story.tell(h.Snapshot, 1.1, NODE, step=5, stage="durable")
    assert struck(story, 1.2) == ("calm",)


def test_between_disk_and_store_is_an_upload() -> None:
    story = Story()
    story.up(0.0, NODE)
    story.tell(h.Snapshot, 1.0, NODE, step=5, stage="local")
    assert struck(story, 1.2) == ("upload",)


def test_a_newcomer_rejoins_until_it_commits() -> None:
    story = Story()
    story.up(0.0, NODE)
    story.commit(1.0, 1, NODE)
    story.up(2.0, "node-1", replaces=NODE)
    assert struck(story, 2.5) == ("rejoin",)
    story.commit(3.0, 2, "node-1")
    assert struck(story, 3.5) == ("calm",)


def test_after_a_loss_it_recovers_until_anybody_commits() -> None:
    story = Story()
    story.up(0.0, NODE, "node-1")
    story.tell(h.FaultEffect, 1.0, NODE, fault=1, what="gone")
    story.gone(1.0, NODE)
    assert struck(story, 1.5) == ("recovery",)
    story.commit(2.0, 7, "node-1")
    assert struck(story, 2.5) == ("calm",)


def test_a_noticed_node_drains_and_another_notice_is_a_second_one() -> None:
    story = Story()
    story.up(0.0, NODE, "node-1")
    story.tell(h.FaultEffect, 1.0, NODE, fault=1, what="published", deadline_wall_s=9.0)
    assert struck(story, 1.1, "notice") == ("second-notice",)
    assert struck(story, 1.2, "kill") == ("calm",)
    story.tell(h.NoticeSeen, 1.5, NODE)
    assert struck(story, 1.6, "notice") == ("drain", "second-notice")
    story.gone(2.0, NODE, by_itself=True)
    assert struck(story, 2.5, "notice") == ("calm",)


def entry(plan: Schedule, **trial: object) -> Entry:
    trial.setdefault("outcome", Outcome.PASS)
    return Entry(purpose="search", key=key_of(plan), schedule=plan, trial=Trial(**trial))


KILL = Schedule(fault=(Kill(on=Trigger(at_step=3)),))
ZONE = Schedule(fault=(Kill(on=Trigger(event="join", nth=2), target=Target(zone="a")),))


def test_a_trial_is_read_off_a_history() -> None:
    story = Story()
    story.up(0.0, NODE)
    for step in range(1, 11):
        passed(story, float(step), "step.after-commit")
        story.commit(float(step), step, NODE)
    story.tell(h.Snapshot, 10.5, NODE, step=10, stage="durable")
    story.tell(h.FaultInjected, 11.0, fault=0, kind="kill", nodes=(NODE,), step=10)
    story.tell(h.FaultEffect, 11.1, NODE, fault=0, what="gone")
    finding = Finding(oracle="progress", outcome=Outcome.FAIL, message="it stopped")
    verdict = Verdict(
        outcome=Outcome.FAIL,
        schedule="s",
        trainer="t",
        seed=0,
        findings=(finding,),
        measured={"recovery_s": 1.5, "rework_steps": 2},
        run="runs/x",
    )
    trial = trial_of(ZONE, verdict, story.records, took_s=2.0)
    assert (trial.outcome, trial.oracle, trial.message) == (Outcome.FAIL, "progress", "it stopped")
    assert (trial.recovery_s, trial.rework_steps) == (1.5, 2)
    assert trial.events == {"commit": 10, "snapshot.durable": 1}
    assert trial.points == {"step.after-commit": 10}
    assert (trial.steps, trial.steps_per_s) == (10, 1.0)
    (strike,) = trial.strikes
    assert strike == Strike(
        kind="kill", target="zone", trigger="event join", effect=True, step=10, phases=("calm",)
    )


def test_what_is_new_or_worse_is_built_on_and_what_never_bites_is_not_drawn() -> None:
    calm = Strike(
        kind="kill", target="any", trigger="at_step", effect=True, step=1, phases=("calm",)
    )
    child = Strike(kind="kill-child", target="any", trigger="at_step", step=1)
    notices = [Schedule(fault=(Notice(on=Trigger(at_step=n)),)) for n in range(1, 5)]
    known = learned(
        [
            entry(KILL, strikes=(calm, child), events={"join": 5}),
            entry(notices[0], strikes=(calm, child)),
            entry(notices[1], strikes=(calm, child), recovery_s=3.0),
            entry(notices[2], strikes=(calm,), outcome=Outcome.UNKNOWN, recovery_s=9.0),
            entry(notices[3], strikes=(calm,), recovery_s=2.0, events={"join": 9}),
        ]
    )
    assert known.corpus == (KILL, notices[1])
    assert known.useless == ("kill-child",)
    assert known.events == {"join": 8}


def test_what_was_never_exercised_is_told() -> None:
    write = Strike(kind="kill", target="zone", trigger="at_step", effect=True, phases=("write",))
    missed = Strike(kind="notice", target="any", trigger="event drain")
    seen = coverage(
        [
            entry(KILL, strikes=(write, missed), events={"join": 1}, points={"a.b": 1}),
            entry(ZONE, strikes=(write,), outcome=Outcome.UNKNOWN),
        ],
        ground_of("minimal", kinds=("kill", "notice")),
    )
    assert (seen.schedules, seen.outcomes) == (2, {"pass": 1, "unknown": 1})
    assert (seen.kinds, seen.phases) == ({"kill": 2}, {"write": 2})
    assert seen.never["kinds"] == ("notice",)
    assert "zone" not in seen.never["targets"]
    assert set(seen.never["triggers"]) == {"at_s", "event join", "point a.b"}
    assert set(seen.never["phases"]) == set(PHASES) - {"write"}
