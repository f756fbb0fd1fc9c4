"""What is restored, and whether it was there."""

from typing import Any

import pytest
from histories import KILL, Story, ended, outcome, undisturbed

from chaosspot import history as h
from chaosspot.oracles import ORACLES
from chaosspot.verdict import Outcome


def cold(
    *, restored: int = 4, resumed: int | None = None, saved: tuple[int, ...] = (4,), up_t: float = 9
) -> Story:
    """Steps are durable 0.1 s after their commit; all are lost at 6.1, and node-2 starts cold."""
    story = undisturbed(6)
    for step in saved:
        story.saved(step + 0.1, step, "node-0")
    story.kill(6.1, "node-0", "node-1")
    story.up(up_t, "node-2", replaces="node-0")
    story.restored(up_t + 1, restored, "node-2")
    for step in range((restored if resumed is None else resumed) + 1, 9):
        story.step(up_t + 1 + step, step, "node-2", generation=2)
    return ended(story)


# snapshots


def test_a_restore_of_what_was_reported_passes() -> None:
    assert outcome("snapshots", cold().evidence(KILL)) is Outcome.PASS


def test_a_restore_of_what_nobody_reported_is_a_failure() -> None:
    findings = list(ORACLES["snapshots"](cold(restored=5).evidence(KILL)))
    assert [f.outcome for f in findings] == [Outcome.FAIL]
    assert findings[0].message == (
        "node-2 restored step 5 from store, which nobody had reported durable"
    )


def test_a_report_may_come_a_moment_after_the_restore() -> None:
    for late_s, expected in ((1.0, Outcome.PASS), (1.1, Outcome.FAIL)):
        story = cold(restored=5)
        story.saved(10.0 + late_s, 5, "node-0")
        assert outcome("snapshots", story.evidence(KILL)) is expected


def test_a_local_snapshot_serves_only_its_own_node() -> None:
    for node, expected in (("node-0", Outcome.PASS), ("node-1", Outcome.FAIL)):
        story = undisturbed(6)
        story.saved(4.1, 4, node, "local")
        story.restored(8.0, 4, "node-0", "local")
        assert outcome("snapshots", ended(story).evidence()) is expected


def test_a_stage_that_was_not_reached_is_no_snapshot() -> None:
    story = cold()
    story.saved(5.1, 5, "node-0", "local", pid=9)
    story.restored(30.0, 5, "node-2")
    assert outcome("snapshots", story.evidence(KILL)) is Outcome.FAIL


def test_a_trainer_that_reports_no_snapshots_is_not_judged() -> None:
    assert outcome("snapshots", cold(saved=()).evidence(KILL)) is None
    story = undisturbed(3)
    story.saved(3.1, 3, "node-0", "local")
    story.restored(4.0, 2, "node-0", "store")
    story.restored(4.1, 2, "node-0", "peer")
    assert outcome("snapshots", ended(story).evidence()) is None


def silenced(*points: str, stage: str | None = None, goes_on: bool = False) -> Story:
    """node-0 ends after step 5, perhaps while it saved that step; node-2 restores it."""
    story = Story()
    story.up(0.0, "node-0")
    for step in (4, 5):
        story.step(float(step), step, "node-0")
    story.saved(4.1, 4, "node-0")
    if stage:
        story.saved(5.1, 5, "node-0", stage)
    if goes_on:
        story.begin(5.2, 6, "node-0")
    for number, point in enumerate(points):
        story.tell(h.Point, 5.3 + number / 10, "node-0", name=point)
    story.kill(6.0, "node-0")
    story.up(7.0, "node-2")
    story.restored(8.0, 5, "node-2")
    return ended(story)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, Outcome.UNKNOWN),  # its last word: it may have saved and been killed at once
        ({"goes_on": True}, Outcome.FAIL),  # it went on, so nothing was being saved
        ({"goes_on": True, "stage": "local"}, Outcome.UNKNOWN),  # out of band, and it had begun
        ({"goes_on": True, "stage": "staged"}, Outcome.UNKNOWN),
        ({"stage": "local", "points": ["upload.before-manifest"]}, Outcome.FAIL),
        ({"stage": "local", "points": ["upload.after-manifest"]}, Outcome.UNKNOWN),
        ({"points": ["snapshot.before-rename"]}, Outcome.FAIL),
        ({"points": ["snapshot.half-written"]}, Outcome.FAIL),
        ({"points": ["snapshot.before-rename", "snapshot.after-rename"]}, Outcome.UNKNOWN),
        ({"points": ["snapshot.before-rename", "step.after-commit"]}, Outcome.FAIL),
        ({"points": ["step.after-commit"]}, Outcome.UNKNOWN),
    ],
)
def test_what_a_dead_process_may_have_completed_is_unknown(
    how: dict[str, Any], expected: Outcome
) -> None:
    story = silenced(*how.pop("points", []), **how)
    assert outcome("snapshots", story.evidence(KILL)) is expected


def test_a_point_before_an_earlier_snapshot_says_nothing_about_a_later_one() -> None:
    story = Story()
    story.up(0.0, "node-0")
    story.tell(h.Point, 3.0, "node-0", name="snapshot.before-rename")
    story.saved(4.1, 4, "node-0")
    story.step(5.0, 5, "node-0")
    story.kill(6.0, "node-0")
    story.restored(8.0, 5, "node-2")
    assert outcome("snapshots", ended(story).evidence(KILL)) is Outcome.UNKNOWN


def test_only_who_held_the_state_and_ended_before_may_have_completed_it() -> None:
    story = silenced("snapshot.before-rename")
    story.step(4.5, 4, "node-1", pid=7)  # never had step 5
    story.step(5.0, 5, "node-3", pid=8)  # is alive
    story.step(5.0, 5, "node-4", pid=9)
    story.gone(8.1, "node-4")  # ended after the restore
    story.gone(5.9, "node-1")
    assert outcome("snapshots", story.evidence(KILL)) is Outcome.FAIL


def test_a_local_snapshot_of_another_node_was_not_completed_silently() -> None:
    story = silenced()
    story.saved(4.1, 4, "node-2", "local")
    story.restored(9.0, 5, "node-2", "local")
    outcomes = [f.outcome for f in ORACLES["snapshots"](story.evidence(KILL))]
    assert outcomes == [Outcome.UNKNOWN, Outcome.FAIL]


def two_restores(first: int, second: int, *, up_t: float = 9.0) -> Story:
    story = undisturbed(6)
    for step in (2, 4):
        story.saved(step + 0.1, step, "node-0")
    story.kill(6.1, "node-0", "node-1")
    story.up(up_t, "node-2", "node-3")
    story.restored(10.0, first, "node-2")
    story.restored(10.1, second, "node-3")
    story.step(12.0, 5, "node-2", "node-3", generation=2)
    return ended(story)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(4, 4, Outcome.PASS), (2, 4, Outcome.FAIL), (4, 2, Outcome.FAIL), (2, 2, Outcome.PASS)],
)
def test_an_older_step_than_another_could_restore_is_a_failure(
    first: int, second: int, expected: Outcome
) -> None:
    """Where nobody restores the newest, it may not have been there: that is durability's."""
    assert outcome("snapshots", two_restores(first, second).evidence(KILL)) is expected


@pytest.mark.parametrize(("up_t", "expected"), [(5.1, Outcome.FAIL), (5.0, Outcome.PASS)])
def test_what_became_durable_while_a_node_started_may_be_missed(
    up_t: float, expected: Outcome
) -> None:
    story = two_restores(2, 4, up_t=up_t)
    assert outcome("snapshots", story.evidence(KILL)) is expected


def test_the_start_that_counts_is_that_of_the_nodes_present_life() -> None:
    for incarnation, expected in ((0, Outcome.PASS), (1, Outcome.FAIL)):
        story = undisturbed(6)
        story.saved(4.1, 4, "node-0")
        story.up(5.0, "node-2", "node-3")
        story.kill(6.1, "node-0", "node-1")
        if incarnation:
            story.tell(h.NodeRestart, 9.0, "node-2", code=1, pid=0)
        story.restored(10.0, 2, "node-2", incarnation=incarnation)
        story.restored(10.1, 4, "node-3")
        story.saved(2.1, 2, "node-0")
        assert outcome("snapshots", ended(story).evidence(KILL)) is expected


def test_while_a_peer_holds_the_state_an_old_restore_does_no_harm() -> None:
    story = undisturbed(6)
    for step in (2, 4):
        story.saved(step + 0.1, step, "node-0")
    story.up(7.0, "node-2", "node-3")
    story.restored(8.0, 2, "node-2")
    story.restored(8.1, 4, "node-3")
    assert outcome("snapshots", ended(story).evidence()) is Outcome.PASS


# durability


def test_what_was_durable_is_what_training_goes_on_from() -> None:
    assert outcome("durability", cold(saved=(2, 4)).evidence(KILL)) is Outcome.PASS


def test_an_older_step_than_the_durable_one_is_a_failure() -> None:
    (finding,) = ORACLES["durability"](cold(restored=2, saved=(2, 4)).evidence(KILL))
    assert finding.outcome is Outcome.FAIL
    assert finding.measured == 2
    assert finding.message == (
        "step 4 was reported durable 2.0 s before the last node that held the state was gone, "
        "and training went on from step 2"
    )


def test_who_starts_from_nothing_has_lost_it_too() -> None:
    story = undisturbed(6)
    story.saved(4.1, 4, "node-0")
    story.kill(6.1, "node-0", "node-1")
    story.step(10.0, 1, "node-2", generation=2)
    assert outcome("durability", ended(story).evidence(KILL)) is Outcome.FAIL


@pytest.mark.parametrize(("saved_t", "expected"), [(5.1, Outcome.FAIL), (5.2, None)])
def test_a_report_just_before_the_end_of_all_is_not_held_against_it(
    saved_t: float, expected: Outcome | None
) -> None:
    story = cold(restored=2, saved=())
    story.saved(saved_t, 4, "node-0")
    assert outcome("durability", story.evidence(KILL)) is expected


def test_as_long_as_anyone_holds_the_state_nothing_is_asked_of_the_store() -> None:
    story = undisturbed(6)
    story.saved(4.1, 4, "node-0")
    story.kill(6.1, "node-1")
    story.step(8.0, 3, "node-0", generation=2)
    assert outcome("durability", ended(story).evidence(KILL)) is None


def test_a_newcomer_holds_the_state_once_it_has_restored_it() -> None:
    story = undisturbed(6)
    story.saved(4.1, 4, "node-0")
    story.restored(6.05, 6, "node-2", "peer")
    story.kill(6.1, "node-0", "node-1")
    story.step(8.0, 3, "node-2", generation=2)
    assert outcome("durability", ended(story).evidence(KILL)) is None


def test_a_cold_start_that_never_committed_is_not_judged() -> None:
    story = undisturbed(6)
    story.saved(4.1, 4, "node-0")
    story.kill(6.1, "node-0", "node-1")
    story.restored(8.0, 2, "node-2")
    story.kill(9.0, "node-2", fault=1)
    story.step(12.0, 5, "node-3", generation=3)
    assert outcome("durability", ended(story).evidence(KILL, KILL)) is Outcome.PASS


def test_each_cold_start_is_judged_by_what_was_durable_then() -> None:
    story = cold(restored=4, saved=(4,))
    story.saved(19.0, 8, "node-2")
    story.kill(21.0, "node-2", fault=1)
    story.step(25.0, 5, "node-3", generation=3)
    outcomes = [f.outcome for f in ORACLES["durability"](story.evidence(KILL, KILL))]
    assert outcomes == [Outcome.PASS, Outcome.FAIL]


def test_snapshots_of_steps_that_training_went_back_behind_count_no_more() -> None:
    story = undisturbed(6)
    story.saved(2.1, 2, "node-0")
    story.saved(4.1, 4, "node-0")
    story.step(6.5, 3, "node-0", "node-1", generation=2)
    story.kill(7.0, "node-0", "node-1")
    story.step(10.0, 3, "node-2", generation=3)
    assert outcome("durability", ended(story).evidence(KILL)) is Outcome.PASS


def test_snapshots_up_to_where_training_went_back_still_count() -> None:
    story = undisturbed(6)
    for step in (4, 6):
        story.saved(step + 0.1, step, "node-0")
    story.step(6.5, 4, "node-0", "node-1", generation=2)
    story.kill(9.0, "node-0", "node-1")
    story.step(12.0, 3, "node-2", generation=3)
    (finding,) = ORACLES["durability"](ended(story).evidence(KILL))
    assert (finding.outcome, finding.measured) == (Outcome.FAIL, 2)


def test_the_commit_of_a_slow_rank_does_not_take_its_step_back() -> None:
    story = undisturbed(3)
    story.step(4.0, 4, "node-0")
    story.saved(4.1, 4, "node-0")
    story.commit(4.2, 4, "node-1")
    story.kill(6.0, "node-0", "node-1")
    story.step(10.0, 3, "node-2", generation=3)
    assert outcome("durability", ended(story).evidence(KILL)) is Outcome.FAIL


def test_who_is_gone_holds_nothing_even_if_it_still_speaks() -> None:
    story = cold(restored=2, saved=(4,))
    story.commit(6.2, 7, "node-1")
    assert outcome("durability", story.evidence(KILL)) is Outcome.FAIL


def test_a_restart_loses_the_state_as_well() -> None:
    story = Story()
    story.up(0.0, "node-0")
    for step in (1, 2, 3, 4):
        story.step(float(step), step, "node-0")
    story.saved(2.1, 2, "node-0")
    story.tell(h.NodeRestart, 5.0, "node-0", code=1, pid=0)
    story.step(8.0, 1, "node-0", generation=2, incarnation=1)
    assert outcome("durability", ended(story).evidence()) is Outcome.FAIL
