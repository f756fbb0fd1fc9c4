"""Each oracle on both sides of its bound."""

from typing import Any

import pytest
from histories import KILL, NOTICE, Story, ended, loss, outcome, undisturbed
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot.oracles import ORACLES, Evidence, judge, leaks
from chaosspot.oracles.episodes import episodes
from chaosspot.schedule import Expectation, Network, Pause, Toxic, Trigger
from chaosspot.verdict import Outcome

# progress


def test_no_commit_at_all_is_unknown() -> None:
    story = Story()
    story.up(0.0, "node-0")
    assert outcome("progress", ended(story).evidence()) is Outcome.UNKNOWN


def test_no_step_after_the_loss_is_a_failure() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    assert outcome("progress", ended(story).evidence(KILL)) is Outcome.FAIL


def test_a_step_in_flight_that_is_still_committed_is_no_progress() -> None:
    story = undisturbed(5)
    story.begin(5.05, 6, "node-0", "node-1")
    story.kill(5.1, "node-1")
    story.commit(5.2, 6, "node-0")
    assert outcome("progress", ended(story).evidence(KILL)) is Outcome.FAIL


def test_a_step_begun_after_the_loss_is_progress() -> None:
    assert outcome("progress", ended(loss()).evidence(KILL)) is Outcome.PASS


def test_an_interrupted_run_proves_no_lack_of_progress() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    evidence = ended(story, 6.0, "interrupted").evidence(KILL)
    assert outcome("progress", evidence) is Outcome.UNKNOWN


def test_without_capacity_nothing_can_progress() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-0", "node-1")
    assert outcome("progress", ended(story).evidence(KILL)) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("code", "failed_t", "expected"),
    [
        (1, 5.15, Outcome.FAIL),
        (1, 5.25, Outcome.FAIL),
        (0, 5.15, Outcome.UNKNOWN),  # it may have been done
        (1, 5.05, Outcome.UNKNOWN),  # not because of the fault
    ],
)
def test_who_fails_by_itself_because_of_a_fault_does_not_want_for_capacity(
    code: int, failed_t: float, expected: Outcome
) -> None:
    """The kill of node-1 is made at 5.1 and verified at 5.2; node-0 ends before or after that."""
    story = undisturbed(5)
    gone = [(failed_t, "node-0", code), (5.2, "node-1", None)]
    story.tell(h.FaultInjected, 5.1, fault=0, kind="kill", nodes=("node-1",))
    for t, node, its_code in sorted(gone):
        story.gone(t, node, by_itself=node == "node-0", code=its_code)
    story.tell(h.FaultEffect, 5.2, "node-1", fault=0, what="gone")
    story.tell(h.FaultHealed, 5.2, fault=0)
    assert outcome("progress", ended(story).evidence(KILL)) is expected


@pytest.mark.parametrize("healed", [True, False])
def test_who_gives_up_while_a_link_is_cut_has_not_survived(healed: bool) -> None:
    """Both end with an error before the link is whole again; the run may end with them."""
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind="network", nodes=("node-0", "node-1"))
    for node in ("node-0", "node-1"):
        story.tell(h.FaultEffect, 5.1, node, fault=0, what="impaired")
    for node in ("node-0", "node-1"):
        story.gone(5.5, node, by_itself=True, code=1)
    if healed:
        story.tell(h.FaultHealed, 8.0, fault=0)
    cut = Network(
        on=Trigger(at_s=1.0), link="coordinator", toxic=(Toxic(type="timeout"),), cuts=True
    )
    evidence = ended(story, 9.0, reason="exited").evidence(cut)
    assert outcome("progress", evidence) is Outcome.FAIL


def test_a_trainer_without_begins_is_judged_by_its_second_commit() -> None:
    story = Story()
    story.up(0.0, "node-0", "node-1")
    story.commit(1.0, 1, "node-0")
    story.kill(1.5, "node-1")
    story.commit(2.0, 2, "node-0")
    assert outcome("progress", ended(story).evidence(KILL)) is Outcome.FAIL
    story = Story()
    story.up(0.0, "node-0", "node-1")
    story.kill(1.5, "node-1")
    story.commit(2.0, 2, "node-0")
    story.commit(3.0, 3, "node-0")
    assert outcome("progress", ended(story).evidence(KILL)) is Outcome.PASS


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("decided", Outcome.FAIL),
        ("stall timeout", Outcome.FAIL),
        ("interrupted", Outcome.UNKNOWN),
        ("finished", Outcome.UNKNOWN),
    ],
)
def test_repeating_old_steps_without_ever_passing_them_is_no_progress(
    reason: str, expected: Outcome
) -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    story.step(7.0, 4, "node-0", generation=2)
    story.step(8.0, 5, "node-0", generation=2)
    assert outcome("progress", ended(story, reason=reason).evidence(KILL)) is expected


@pytest.mark.parametrize(
    ("reason", "min_nodes", "expected"),
    [
        ("stall timeout", 1, Outcome.FAIL),
        ("stall timeout", 2, Outcome.PASS),  # one is left: it wants for capacity
        ("interrupted", 1, Outcome.PASS),
        ("decided", 1, Outcome.PASS),
    ],
)
def test_who_comes_back_and_then_stops_for_good_has_not_survived(
    reason: str, min_nodes: int, expected: Outcome
) -> None:
    story = loss()
    if min_nodes == 2:
        story = undisturbed(5)
        story.up(5.05, "node-2")
        story.kill(5.1, "node-1")
        story.step(7.0, 6, "node-0", "node-2", generation=2)
        story.gone(8.0, "node-2")
    evidence = ended(story, reason=reason).evidence(KILL, min_nodes=min_nodes)
    assert outcome("progress", evidence) is expected


def test_a_stall_that_no_fault_came_before_says_nothing_of_faults() -> None:
    evidence = ended(undisturbed(5), reason="stall timeout").evidence()
    assert outcome("progress", evidence) is Outcome.PASS


# recovery


@pytest.mark.parametrize(
    ("took_s", "expected"), [(9.99, Outcome.PASS), (10.0, Outcome.PASS), (10.01, Outcome.FAIL)]
)
def test_recovery_on_both_sides_of_its_bound(took_s: float, expected: Outcome) -> None:
    evidence = ended(loss(recovery_s=took_s)).evidence(KILL, recovery_s=10.0)
    assert episodes(evidence)[0].recovery_s == pytest.approx(took_s)
    assert outcome("recovery", evidence) is expected


def test_the_schedules_bound_goes_before_the_promise() -> None:
    evidence = ended(loss(recovery_s=5.0)).evidence(
        KILL, recovery_s=10.0, expect=Expectation(recovery_s=4.0)
    )
    assert outcome("recovery", evidence) is Outcome.FAIL


def test_recovery_without_a_bound_is_not_judged() -> None:
    assert outcome("recovery", ended(loss()).evidence(KILL)) is None


def test_recovery_that_never_came_fails_only_after_the_bound() -> None:
    def never(end_t: float) -> Evidence:
        story = undisturbed(5)
        story.kill(5.1, "node-1")
        return ended(story, end_t).evidence(KILL, recovery_s=10.0)

    assert outcome("recovery", never(15.0)) is Outcome.UNKNOWN
    assert outcome("recovery", never(15.2)) is Outcome.FAIL


def cold_start(*, up_t: float) -> Story:
    """Everyone is gone at 5.1; a replacement is up at ``up_t`` and commits step 4 again 2 s on."""
    story = undisturbed(5)
    story.kill(5.1, "node-0", "node-1")
    story.up(up_t, "node-2", replaces="node-0")
    for number, step in enumerate((4, 5, 6, 7)):
        story.step(up_t + 2.0 + number, step, "node-2", generation=2)
    return story


def test_recovery_starts_when_the_capacity_is_there_again() -> None:
    episode = episodes(ended(cold_start(up_t=50.0)).evidence(KILL))[0]
    assert episode.recovery_s == pytest.approx(2.0)
    assert episode.catch_up_s == pytest.approx(4.0)


def test_capacity_is_what_lives_and_is_not_paused() -> None:
    """One of two is paused at 5.1 and goes on at 9.0; two are needed."""
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind="pause", nodes=("node-1",))
    story.tell(h.FaultEffect, 5.1, "node-1", fault=0, what="paused")
    story.tell(h.FaultHealed, 9.0, fault=0)
    story.step(10.0, 6, "node-0", "node-1", generation=2)
    evidence = ended(story).evidence(Pause(on=Trigger(at_s=1.0)), min_nodes=2)
    able = [sorted(evidence.able_workers(t)) for t in (5.0, 5.1, 8.9, 9.0)]
    assert able == [["node-0", "node-1"], ["node-0"], ["node-0"], ["node-0", "node-1"]]
    (episode,) = episodes(evidence)
    assert (episode.survivors, episode.start_t) == (1, 9.0)
    assert episode.recovery_s == pytest.approx(1.0)


def test_catch_up_is_judged_only_when_promised() -> None:
    story = ended(cold_start(up_t=50.0))
    assert outcome("recovery", story.evidence(KILL, catch_up_s=3.9)) is Outcome.FAIL
    assert outcome("recovery", story.evidence(KILL, catch_up_s=4.0)) is Outcome.PASS


def test_losses_that_overlap_are_one_episode() -> None:
    story = undisturbed(5)
    story.up(5.0, "node-2")
    story.kill(5.1, "node-1", fault=0)
    story.kill(5.6, "node-2", fault=1)
    story.step(7.0, 6, "node-0", generation=2)
    evidence = ended(story).evidence(KILL, KILL)
    assert [e.faults for e in episodes(evidence)] == [(0, 1)]
    assert episodes(evidence)[0].recovery_s == pytest.approx(1.4)


def test_losses_apart_are_two_episodes() -> None:
    story = loss(steps=8)
    story.up(9.0, "node-2")
    story.kill(9.1, "node-2", fault=1)
    story.step(12.0, 9, "node-0", generation=3)
    assert [e.faults for e in episodes(ended(story).evidence(KILL, KILL))] == [(0,), (1,)]


def test_a_planned_leave_is_measured_by_the_longest_gap_between_commits() -> None:
    story = undisturbed(5)
    story.step(6.0, 6, "node-0", generation=2)
    story.step(8.5, 7, "node-0", generation=2)
    story.step(9.0, 8, "node-0", generation=2)
    story.notice(5.2, "node-1", lead_s=30.0, gone_t=5.9)
    evidence = ended(story).evidence(NOTICE)
    assert episodes(evidence)[0].recovery_s == pytest.approx(2.5)


# rework


def rolled_back(steps: int) -> Story:
    """node-1 is lost after step 9 and the survivor goes back ``steps`` steps."""
    story = undisturbed(9)
    story.kill(9.1, "node-1")
    for number, step in enumerate(range(10 - steps, 12)):
        story.step(11.0 + number, step, "node-0", generation=2)
    return story


@pytest.mark.parametrize(("steps", "expected"), [(6, Outcome.PASS), (7, Outcome.FAIL)])
def test_rework_on_both_sides_of_its_bound(steps: int, expected: Outcome) -> None:
    evidence = ended(rolled_back(steps)).evidence(KILL, snapshot_every_steps=5)
    assert outcome("rework", evidence) is expected


@pytest.mark.parametrize(("steps", "expected"), [(1, Outcome.PASS), (2, Outcome.FAIL)])
def test_while_peers_hold_the_state_only_the_step_in_flight_may_repeat(
    steps: int, expected: Outcome
) -> None:
    evidence = ended(rolled_back(steps)).evidence(
        KILL, snapshot_every_steps=5, peers_hold_state=True
    )
    assert outcome("rework", evidence) is expected


@pytest.mark.parametrize(("victims", "expected"), [(1, Outcome.FAIL), (2, Outcome.PASS)])
def test_each_lost_node_may_interrupt_one_attempt(victims: int, expected: Outcome) -> None:
    story = undisturbed(5)
    story.up(5.0, "node-2")
    story.kill(5.1, *["node-1", "node-2"][:victims])
    for generation, t in ((2, 5.2), (3, 5.3)):
        story.begin(t, 6, "node-0", generation=generation)
    story.step(7.0, 6, "node-0", generation=4)
    story.step(8.0, 7, "node-0", generation=4)
    evidence = ended(story).evidence(KILL, snapshot_every_steps=5, peers_hold_state=True)
    assert outcome("rework", evidence) is expected


def test_when_no_peer_is_left_the_snapshot_bounds_rework() -> None:
    story = cold_start(up_t=10.0)
    evidence = ended(story).evidence(KILL, snapshot_every_steps=1, peers_hold_state=True)
    assert outcome("rework", evidence) is Outcome.PASS  # steps 4 and 5: one, and in flight
    assert sum(f.measured or 0 for f in ORACLES["rework"](evidence)) == 2


def test_rework_without_any_fault_is_a_failure() -> None:
    story = undisturbed(5)
    story.step(7.0, 5, "node-0", generation=2)
    story.step(8.0, 6, "node-0", generation=2)
    assert outcome("rework", ended(story).evidence(snapshot_every_steps=5)) is Outcome.FAIL


def test_rework_cannot_be_counted_without_generations() -> None:
    story = Story()
    story.up(0.0, "node-0")
    story.commit(1.0, 1, "node-0", generation=None)
    evidence = ended(story).evidence(snapshot_every_steps=5)
    assert outcome("rework", evidence) is Outcome.UNKNOWN
    assert outcome("rework", ended(story).evidence()) is None


def test_survivors_that_go_on_before_the_loss_is_verified_repeat_the_step_because_of_it() -> None:
    story = undisturbed(5)
    story.begin(5.05, 6, "node-0", "node-1")
    story.tell(h.FaultInjected, 5.1, fault=0, kind="kill", nodes=("node-1",))
    story.step(5.7, 6, "node-0", generation=2)  # begun at 5.2
    story.gone(5.3, "node-1")
    story.tell(h.FaultEffect, 5.3, "node-1", fault=0, what="gone")
    story.tell(h.FaultHealed, 5.3, fault=0)
    story.step(7.0, 7, "node-0", generation=2)
    evidence = ended(story).evidence(KILL, snapshot_every_steps=5, peers_hold_state=True)
    findings = list(ORACLES["rework"](evidence))
    assert [(f.outcome, f.fault, f.measured) for f in findings] == [(Outcome.PASS, 0, 1)]


# ledger


@pytest.mark.parametrize(
    ("samples", "promise", "expected"),
    [
        ((1, 1), "exactly-once", Outcome.PASS),
        ((1, 2), "exactly-once", Outcome.FAIL),
        ((0, 1), "exactly-once", Outcome.FAIL),
        ((1, 2), "at-least-once", Outcome.PASS),
        ((0, 1), "at-least-once", Outcome.FAIL),
        (None, "exactly-once", Outcome.UNKNOWN),
        ((0, 2), "none", None),
    ],
)
def test_multiplicities(
    samples: tuple[int, ...] | None, promise: str, expected: Outcome | None
) -> None:
    story = undisturbed(2)
    story.step(3.0, 3, "node-0", samples=samples)
    assert outcome("ledger", ended(story).evidence(samples=promise)) is expected


def test_a_wrong_multiplicity_outside_the_lineage_does_not_count() -> None:
    story = undisturbed(2)
    story.step(3.0, 3, "node-1", samples=(0, 1), digest="lost")
    story.step(4.0, 3, "node-0", generation=2)
    assert outcome("ledger", ended(story).evidence(samples="exactly-once")) is Outcome.PASS


def test_a_step_whose_commit_nobody_reported_is_not_known_to_be_whole() -> None:
    story = undisturbed(3)
    story.step(5.0, 5, "node-0", generation=2)
    assert outcome("ledger", ended(story).evidence(samples="exactly-once")) is Outcome.UNKNOWN


# equality


def test_a_state_like_the_twins_is_right() -> None:
    evidence = ended(loss()).evidence(KILL, twin=undisturbed(10), exact="any-world")
    assert outcome("equality", evidence) is Outcome.PASS


def test_one_step_that_differs_from_the_twin_is_a_failure() -> None:
    story = undisturbed(4)
    story.step(5.0, 5, "node-0", digest="wrong")
    evidence = ended(story).evidence(twin=undisturbed(10), exact="any-world")
    findings = [f for f in ORACLES["equality"](evidence) if f.outcome is Outcome.FAIL]
    assert "state after step 5 is wrong, the twin's is s5" in findings[0].message


def test_twins_that_differ_from_each_other_prove_nothing() -> None:
    story = undisturbed(4)
    story.step(5.0, 5, "node-0", digest="wrong")
    evidence = ended(story).evidence(twin=undisturbed(10), twins_agree=False, exact="any-world")
    assert outcome("equality", evidence) is Outcome.UNKNOWN


def test_ranks_that_differ_are_a_failure_without_any_twin() -> None:
    story = undisturbed(4)
    story.commit(5.0, 5, "node-0")
    story.commit(5.0, 5, "node-1", digest="wrong")
    assert outcome("equality", ended(story).evidence(exact="any-world")) is Outcome.FAIL


def test_a_state_that_does_not_descend_from_the_step_before_is_a_failure() -> None:
    story = undisturbed(4)
    story.step(5.0, 5, "node-0", parent="fresh optimizer", generation=2)
    evidence = ended(story).evidence(twin=undisturbed(10), exact="any-world")
    assert outcome("equality", evidence) is Outcome.FAIL


@pytest.mark.parametrize("twin", [None, undisturbed(4)])
def test_without_a_twin_that_goes_as_far_equality_is_unknown(twin: Story | None) -> None:
    evidence = ended(undisturbed(5)).evidence(twin=twin, exact="any-world")
    assert outcome("equality", evidence) is Outcome.UNKNOWN


def test_digests_that_stop_make_equality_unknown() -> None:
    story = undisturbed(4)
    story.step(5.0, 5, "node-0", digest=None, parent=None)
    evidence = ended(story).evidence(twin=undisturbed(10), exact="any-world")
    assert outcome("equality", evidence) is Outcome.UNKNOWN


def test_a_hole_in_the_lineage_makes_equality_unknown() -> None:
    story = undisturbed(4)
    story.step(7.0, 7, "node-0")
    evidence = ended(story).evidence(twin=undisturbed(10), exact="any-world")
    assert outcome("equality", evidence) is Outcome.UNKNOWN


def test_without_digests_equality_is_unknown() -> None:
    story = Story()
    story.commit(1.0, 1, "node-0", digest=None, parent=None)
    evidence = ended(story).evidence(twin=undisturbed(5), exact="any-world")
    assert outcome("equality", evidence) is Outcome.UNKNOWN


def test_same_world_compares_only_steps_of_the_twins_world() -> None:
    story = undisturbed(4)
    story.step(5.0, 5, "node-0", digest="other world")
    evidence = ended(story).evidence(twin=undisturbed(10), exact="same-world")
    assert outcome("equality", evidence) is Outcome.PASS
    assert outcome("equality", ended(story).evidence(twin=undisturbed(10))) is None


# notice


def noticed(*, gone_t: float, by_itself: bool = True, rework: bool = False) -> Evidence:
    story = undisturbed(5)
    if rework:
        story.begin(5.3, 6, "node-0", "node-1")
    story.notice(5.2, "node-1", lead_s=30.0, gone_t=gone_t, by_itself=by_itself)
    story.step(gone_t + 1, 6, "node-0", generation=2)
    return ended(story).evidence(NOTICE, drains_on_notice=True)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gone_t": 35.1}, Outcome.PASS),
        ({"gone_t": 35.3}, Outcome.FAIL),  # after the deadline at 35.2
        ({"gone_t": 20.0, "by_itself": False}, Outcome.FAIL),
        ({"gone_t": 20.0, "rework": True}, Outcome.FAIL),
    ],
)
def test_a_notice_is_kept_by_leaving_in_time_and_without_rework(
    fields: dict[str, Any], expected: Outcome
) -> None:
    assert outcome("notice", noticed(**fields)) is expected


def test_a_notice_is_not_judged_unless_draining_is_promised() -> None:
    story = undisturbed(5)
    story.notice(5.2, "node-1", lead_s=30.0, gone_t=35.2, by_itself=False)
    assert outcome("notice", ended(story).evidence(NOTICE)) is None


@pytest.mark.parametrize(
    ("withdrawn_t", "gone_t", "expected"),
    [
        (13.0, None, Outcome.PASS),
        (None, 6.0, Outcome.FAIL),  # long before anything was to take it
        (13.0, 20.0, Outcome.PASS),
        (None, None, Outcome.UNKNOWN),
    ],
)
def test_where_there_is_no_reason_to_leave_a_node_has_to_stay(
    withdrawn_t: float | None, gone_t: float | None, expected: Outcome
) -> None:
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.2, fault=0, kind="notice", nodes=("node-1",))
    at = {"fault": 0, "deadline_wall_s": 100.0}
    story.tell(h.FaultEffect, 5.2, "node-1", what="published", **at)
    if withdrawn_t is not None:
        story.tell(h.FaultEffect, withdrawn_t, "node-1", fault=0, what="withdrawn")
    if gone_t is not None:
        story.tell(h.NodeGone, gone_t, "node-1", by_itself=True)
        if withdrawn_t is None:
            story.tell(h.FaultEffect, gone_t, "node-1", fault=0, what="gone")
    stays = Expectation(stays=True)
    evidence = ended(story).evidence(NOTICE, expect=stays, drains_on_notice=True)
    assert outcome("notice", evidence) is expected


def test_who_stays_after_a_notice_was_withdrawn_has_broken_nothing() -> None:
    for withdrawn, expected in ((True, None), (False, Outcome.FAIL)):
        story = undisturbed(5)
        story.notice(5.2, "node-1", lead_s=30.0, gone_t=50.0, by_itself=False)
        if withdrawn:
            story.tell(h.FaultEffect, 10.0, "node-1", fault=0, what="withdrawn")
        assert outcome("notice", ended(story).evidence(NOTICE, drains_on_notice=True)) is expected


# effect


def test_a_fault_that_bit_passes() -> None:
    assert outcome("effect", ended(loss()).evidence(KILL)) is Outcome.PASS


def test_a_fault_that_never_acted_is_unknown() -> None:
    assert outcome("effect", ended(undisturbed()).evidence(KILL)) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("drawn", "another", "expected"),
    [
        (True, True, Outcome.PASS),
        (True, False, Outcome.UNKNOWN),  # nothing happened in the whole run
        (False, True, Outcome.UNKNOWN),
    ],
)
def test_a_fault_whose_draw_took_nobody_needs_another_with_an_effect(
    drawn: bool, another: bool, expected: Outcome
) -> None:
    story = loss() if another else undisturbed()
    story.tell(h.FaultMissed, 9.0, fault=1, reason="nobody", drawn=drawn)
    faults = (KILL, KILL) if another else (KILL,)
    if not another:
        story.records = [replace(r, fault=0) if hasattr(r, "fault") else r for r in story.records]
    assert outcome("effect", ended(story).evidence(*faults)) is expected


def test_why_a_fault_did_not_act_is_said() -> None:
    (finding,) = ORACLES["effect"](ended(undisturbed()).evidence(KILL))
    assert finding.message == "kill did not act: the run ended before its trigger"
    story = undisturbed()
    story.tell(h.FaultMissed, 5.0, fault=0, reason="no live node matches its target")
    (finding,) = ORACLES["effect"](ended(story).evidence(KILL))
    assert finding.message == "kill did not act: no live node matches its target"


def test_a_fault_that_missed_one_of_its_nodes_is_unknown() -> None:
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind="kill", nodes=("node-0", "node-1"))
    story.tell(h.FaultEffect, 5.1, "node-1", fault=0, what="gone")
    story.tell(h.FaultHealed, 5.1, fault=0)
    assert outcome("effect", ended(story).evidence(KILL)) is Outcome.UNKNOWN


# leaks, ending, reports


def test_what_outlives_the_run_is_a_failure() -> None:
    story = ended(undisturbed())
    story.tell(h.Leak, 101.0, what="process 7")
    assert outcome("leaks", story.evidence()) is Outcome.FAIL


def test_a_history_without_an_end_is_unknown() -> None:
    evidence = undisturbed().evidence()
    assert outcome("leaks", evidence) is Outcome.UNKNOWN
    assert outcome("ending", evidence) is Outcome.UNKNOWN


def test_a_fault_that_was_not_healed_is_unknown() -> None:
    story = undisturbed()
    story.tell(h.FaultInjected, 5.1, fault=0, kind="kill", nodes=("node-1",))
    (cut_off,) = leaks.check(story.evidence(KILL))
    assert cut_off.message == "fault 0 was not healed: the run was cut off"
    assert outcome("leaks", ended(story).evidence(KILL)) is Outcome.UNKNOWN
    story.tell(h.FaultHealed, 5.2, fault=0)
    assert outcome("leaks", story.evidence(KILL)) is Outcome.PASS


def test_a_fault_that_the_runs_end_cut_off_was_healed_then() -> None:
    story = undisturbed()
    story.tell(h.FaultInjected, 5.1, fault=0, kind="kill", nodes=("node-1",))
    (finding,) = leaks.check(ended(story).evidence(KILL))
    assert (finding.outcome, finding.fault) == (Outcome.UNKNOWN, 0)
    on = "fault 0 was on when the run ended (decided)"
    assert finding.message == f"{on}; it was healed then, and what comes after it was not seen"
    story.tell(h.Leak, 101.0, what="process 7")
    left, finding = leaks.check(story.evidence(KILL))
    assert left.outcome is Outcome.FAIL
    assert finding.message == f"{on}: what comes after it was not seen"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("decided", None),
        ("steps", None),
        ("finished", None),
        ("interrupted", Outcome.UNKNOWN),
        ("start timeout", Outcome.UNKNOWN),
        ("exited", Outcome.UNKNOWN),
    ],
)
def test_only_a_run_that_went_its_way_can_pass(reason: str, expected: Outcome | None) -> None:
    assert outcome("ending", ended(undisturbed(), reason=reason).evidence()) is expected


def test_a_report_that_is_no_event_is_unknown() -> None:
    story = ended(undisturbed())
    story.tell(h.Malformed, 1.0, "node-0", line="{", reason="truncated")
    assert outcome("reports", story.evidence()) is Outcome.UNKNOWN
    (finding,) = ORACLES["reports"](story.evidence())
    assert finding.message == "node-0: truncated: '{' (1 such lines)"


# all together


def test_a_good_run_passes_in_all_respects() -> None:
    evidence = ended(loss()).evidence(
        KILL,
        twin=undisturbed(10),
        exact="any-world",
        samples="exactly-once",
        snapshot_every_steps=5,
        peers_hold_state=True,
        drains_on_notice=True,
        recovery_s=10.0,
    )
    verdict, findings, measured = judge(evidence)
    assert verdict is Outcome.PASS, findings
    assert measured["rework_steps"] == 1
    assert measured["recovery_s"] == pytest.approx(1.0)
    assert 0 < measured["goodput"] < 1


def test_the_figures_are_the_worst_of_all_losses() -> None:
    story = loss(steps=8)
    story.restored(8.5, 8, "node-2", "peer")
    story.kill(9.1, "node-1", fault=1)
    story.step(12.0, 9, "node-0", generation=3)
    story.restored(13.0, 9, "node-3", "store")
    story.restored(13.1, 9, "node-4", "store")
    _, _, measured = judge(ended(story).evidence(KILL, KILL))
    assert measured["recovery_s"] == measured["catch_up_s"] == pytest.approx(2.9)
    assert measured["restored"] == {"peer": 1, "local": 0, "store": 2}


def test_an_oracle_that_crashes_gives_unknown() -> None:
    def crash(_: Evidence) -> list[Any]:
        raise ZeroDivisionError("by hand")

    verdict, findings, _ = judge(ended(loss()).evidence(KILL), {"bad": crash})
    assert verdict is Outcome.UNKNOWN
    assert "ZeroDivisionError: by hand" in findings[0].message


def test_what_follows_from_a_stand_still_is_said_to_follow() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    evidence = ended(story).evidence(KILL, recovery_s=10.0)
    _, findings, _ = judge(evidence)
    causes = {f.oracle: f.caused_by for f in findings if f.outcome is Outcome.FAIL}
    assert causes == {"progress": (), "recovery": ("progress",)}
