from histories import Story, loss, undisturbed

from chaosspot import history as h
from chaosspot.oracles.lineage import Lineage


def test_the_lineage_of_an_undisturbed_run_is_all_of_it() -> None:
    lineage = Lineage(undisturbed(10).records)
    assert list(lineage.commits) == list(range(1, 11))
    assert lineage.abandoned == []
    assert lineage.breaks == []
    assert lineage.holes == []


def test_a_step_repeated_by_the_survivor_abandons_one_attempt() -> None:
    abandoned = Lineage(loss().records).abandoned
    assert [(a.step, a.generation) for a in abandoned] == [(6, 1)]


def test_a_step_begun_when_the_run_ended_is_not_abandoned() -> None:
    story = undisturbed(3)
    story.begin(3.5, 4, "node-0")
    assert Lineage(story.records).abandoned == []


def test_a_commit_thrown_away_by_a_roll_back_is_abandoned_once_not_per_rank() -> None:
    story = undisturbed(6)
    for step in (5, 6, 7):  # restored step 4 from the store
        story.step(10.0 + step, step, "node-0", "node-1", generation=2)
    lineage = Lineage(story.records)
    assert [(a.step, a.generation) for a in lineage.abandoned] == [(5, 1), (6, 1)]
    assert [c.generation for c in lineage.commits.values()] == [1, 1, 1, 1, 2, 2, 2]


def test_parents_decide_which_attempt_the_final_state_descends_from() -> None:
    story = Story()
    story.commit(1.0, 1, "node-0", generation=1, digest="a1")
    story.commit(2.0, 1, "node-1", generation=2, digest="b1")  # a lone rank, never heard of again
    story.commit(3.0, 2, "node-0", generation=3, digest="a2", parent="a1")
    lineage = Lineage(story.records)
    assert lineage.commits[1].digest == "a1"
    assert [(a.step, a.generation) for a in lineage.abandoned] == [(1, 2)]


def test_a_state_from_nowhere_breaks_the_lineage() -> None:
    story = undisturbed(3)
    story.step(4.0, 4, "node-0", generation=2, parent="other")
    assert [c.step for c in Lineage(story.records).breaks] == [4]


def test_an_unreported_commit_is_a_hole_not_a_loss() -> None:
    story = undisturbed(3)
    story.begin(4.0, 4, "node-0")  # committed, and killed before it said so
    story.step(6.0, 5, "node-1", generation=2)
    lineage = Lineage(story.records)
    assert lineage.holes == [4]
    assert lineage.breaks == []


def test_a_hole_of_any_size_is_not_walked_through() -> None:
    story = undisturbed(3)
    story.step(6.0, 10**12, "node-0", generation=2)
    assert Lineage(story.records).holes == list(range(4, 1004))


def test_an_empty_history_has_no_lineage() -> None:
    lineage = Lineage([])
    assert (lineage.commits, lineage.abandoned, lineage.holes) == ({}, [], [])


def restarted(*, generation: int = 1) -> Story:
    """All are lost after step 6; others go on from step 4, and the generation starts again."""
    story = undisturbed(6)
    story.kill(6.1, "node-0", "node-1")
    for step in (5, 6, 7):
        story.step(10.0 + step, step, "node-2", "node-3", generation=generation)
    return story


def test_a_generation_that_starts_again_does_not_hide_what_was_repeated() -> None:
    lineage = Lineage(restarted().records)
    assert [(a.step, a.t) for a in lineage.abandoned] == [(5, 4.5), (6, 5.5)]
    assert [c.t for c in lineage.commits.values()] == [1, 2, 3, 4, 15, 16, 17]
    assert lineage.thrown_t(lineage.abandoned[0]) == 14.5


def test_a_process_that_begins_the_same_again_makes_another_attempt() -> None:
    story = undisturbed(5)
    story.begin(5.5, 6, "node-0", "node-1")
    story.begin(6.0, 6, "node-0", "node-1")
    story.commit(6.5, 6, "node-0", "node-1")
    lineage = Lineage(story.records)
    assert [(a.step, a.t, len(a.begins)) for a in lineage.abandoned] == [(6, 5.5, 2)]
    assert lineage.attempt_of(lineage.commits[6]).t == 6.0
    assert len(lineage.attempt_of(lineage.commits[6]).commits) == 2


def test_a_process_without_begins_that_commits_again_makes_another_attempt() -> None:
    story = Story()
    for t, step in ((1.0, 1), (2.0, 2), (5.0, 2), (6.0, 3)):
        story.commit(t, step, "node-0", "node-1")
    assert [(a.step, a.t) for a in Lineage(story.records).abandoned] == [(2, 2.0)]


def test_a_newcomer_is_not_in_an_attempt_that_a_loss_had_broken() -> None:
    story = undisturbed(5)
    story.begin(5.5, 6, "node-0", "node-1")
    story.kill(5.6, "node-1")
    story.begin(7.0, 6, "node-2", world=2)  # the newcomer is first, the survivor follows
    story.begin(7.1, 6, "node-0", world=2)
    story.commit(7.5, 6, "node-0", "node-2")
    lineage = Lineage(story.records)
    assert [[b.node for b in a.begins] for a in lineage.abandoned] == [["node-0", "node-1"]]
    assert {b.node for b in lineage.attempt_of(lineage.commits[6]).begins} == {"node-0", "node-2"}


def test_who_first_spoke_after_an_attempt_was_committed_is_in_another() -> None:
    story = undisturbed(6)
    story.step(9.0, 5, "node-2", generation=1)
    story.step(9.5, 6, "node-2", generation=1)
    assert [(a.step, a.t) for a in Lineage(story.records).abandoned] == [(5, 4.5), (6, 5.5)]


def test_a_restarted_node_is_not_in_the_attempt_that_its_former_life_was_in() -> None:
    story = undisturbed(5)
    story.begin(5.5, 6, "node-0")
    story.tell(h.NodeRestart, 5.6, "node-0", code=1, pid=0)
    story.begin(7.0, 6, "node-0", incarnation=1)
    story.commit(7.5, 6, "node-0", incarnation=1)
    assert [(a.step, a.t) for a in Lineage(story.records).abandoned] == [(6, 5.5)]


def test_slow_ranks_of_one_attempt_stay_together() -> None:
    story = Story()
    story.tell(h.Join, 0.0, "node-1")
    story.begin(1.0, 1, "node-0")
    story.commit(1.5, 1, "node-0")
    story.begin(1.6, 1, "node-1")  # it lived before: slow, not new
    story.commit(1.7, 1, "node-1")
    lineage = Lineage(story.records)
    assert lineage.abandoned == []
    assert len(lineage.attempt_of(lineage.commits[1]).commits) == 2


def test_a_late_commit_of_an_old_attempt_is_not_what_others_descend_from() -> None:
    story = undisturbed(5)
    story.begin(5.5, 6, "node-0", "node-1")
    story.step(7.0, 6, "node-0", generation=2)
    story.step(8.0, 7, "node-0", generation=2)
    story.commit(9.0, 6, "node-1", generation=1)
    lineage = Lineage(story.records)
    assert lineage.commits[6].generation == 2
    assert [(a.step, a.generation) for a in lineage.abandoned] == [(6, 1)]


def test_without_digests_the_attempt_before_the_next_step_is_the_lineages() -> None:
    story = Story()
    fields = {"digest": None, "parent": None}
    story.step(1.0, 1, "node-0", generation=5, **fields)
    story.step(2.0, 1, "node-0", generation=1, **fields)
    story.step(3.0, 2, "node-0", generation=1, **fields)
    story.step(4.0, 1, "node-1", generation=9, **fields)
    lineage = Lineage(story.records)
    assert [(c.step, c.t) for c in lineage.commits.values()] == [(1, 2.0), (2, 3.0)]
