from histories import Story, loss, undisturbed

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


def test_an_empty_history_has_no_lineage() -> None:
    lineage = Lineage([])
    assert (lineage.commits, lineage.abandoned, lineage.holes) == ({}, [], [])
