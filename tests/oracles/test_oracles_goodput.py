"""Where the billed time went."""

import pytest
from histories import KILL, Story, ended, loss, undisturbed

from chaosspot import history as h
from chaosspot.oracles import Evidence, judge
from chaosspot.oracles.goodput import CAUSES, billed_node_s, split_node_s


def split(evidence: Evidence) -> dict[str, float]:
    parts = split_node_s(evidence)
    assert parts is not None
    assert sum(parts.values()) == pytest.approx(billed_node_s(evidence))
    return {cause: round(spent, 6) for cause, spent in parts.items()}


def test_an_undisturbed_run_is_useful_but_for_its_start_and_pauses() -> None:
    """Two nodes, ten steps of half a second, each half a second after the one before."""
    parts = split(ended(undisturbed(10), 12.0).evidence())
    assert parts == {"useful": 10.0, "lost": 0, "restart": 1.0, "stall": 0, "idle": 13.0}


def test_a_loss_costs_the_attempt_and_the_wait_until_recovery() -> None:
    """Killed at 5.1 in a step begun at 5.05; begun again at 7.6, committed at 8.1."""
    parts = split(ended(loss(recovery_s=3.0, steps=6), 9.0).evidence(KILL))
    assert parts["useful"] == 5 * 2 * 0.5 + 0.5
    assert parts["lost"] == pytest.approx(2 * 0.05)
    assert parts["stall"] == pytest.approx(7.6 - 5.1)
    assert parts["restart"] == 1.0
    assert parts["idle"] == pytest.approx(14.1 - 5.5 - 0.1 - 2.5 - 1.0)


def test_without_recovery_the_stall_lasts_to_the_end() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    assert split(ended(story, 8.0).evidence(KILL))["stall"] == pytest.approx(2.9)


def test_what_was_committed_and_thrown_away_is_lost_whole() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    for t, step in ((6.0, 4), (7.0, 5), (8.0, 6)):
        story.step(t, step, "node-0", generation=2)
    parts = split(ended(story, 8.0).evidence(KILL))
    assert parts["lost"] == 2 * 2 * 0.5
    assert parts["useful"] == 3 * 2 * 0.5 + 3 * 0.5


def test_an_attempt_cut_off_by_its_nodes_end_is_lost_until_then() -> None:
    story = undisturbed(5)
    story.begin(5.2, 6, "node-1")
    story.gone(5.5, "node-1", by_itself=True, code=1)
    story.step(7.0, 6, "node-0", generation=2)
    assert split(ended(story, 8.0).evidence())["lost"] == pytest.approx(0.3)


def test_a_step_in_flight_at_the_end_is_not_lost() -> None:
    story = undisturbed(5)
    story.begin(5.5, 6, "node-0", "node-1")
    assert split(ended(story, 6.0).evidence())["lost"] == 0


def test_a_replacement_starts_until_its_first_begin() -> None:
    story = loss(steps=10)
    story.up(9.0, "node-2", replaces="node-1")
    story.step(15.0, 11, "node-0", "node-2", generation=3)
    parts = split(ended(story, 15.0).evidence(KILL))
    assert parts["restart"] == pytest.approx(1.0 + 5.5)


def test_a_restart_of_a_node_is_a_start_as_well() -> None:
    story = Story()
    story.up(0.0, "node-0")
    story.step(1.0, 1, "node-0")
    story.tell(h.NodeRestart, 1.5, "node-0", code=1, pid=0)
    story.begin(3.5, 2, "node-0", incarnation=1)
    story.commit(4.0, 2, "node-0", incarnation=1)
    parts = split(ended(story, 4.0).evidence())
    assert parts == {"useful": 1.0, "lost": 0, "restart": 2.5, "stall": 0, "idle": 0.5}


def test_who_never_begins_starts_until_its_end() -> None:
    story = undisturbed(5)
    story.up(3.0, "node-2")
    story.gone(5.0, "node-2", by_itself=True, code=1)
    assert split(ended(story, 6.0).evidence())["restart"] == pytest.approx(1.0 + 2.0)


def test_ranks_of_one_node_are_billed_once() -> None:
    story = Story()
    story.up(0.0, "node-0")
    for rank in (0, 1):
        story.begin(1.0, 1, "node-0", rank=rank)
    for rank in (0, 1):
        story.commit(2.0, 1, "node-0", rank=rank)
    parts = split(ended(story, 2.0).evidence())
    assert parts == {"useful": 1.0, "lost": 0, "restart": 1.0, "stall": 0, "idle": 0}


def test_coordinators_are_not_billed() -> None:
    story = undisturbed(5)
    story.up(0.0, "coordinator", role="coordinator")
    assert billed_node_s(ended(story, 6.0).evidence()) == 12.0


def test_the_figures_show_the_split() -> None:
    _, _, measured = judge(ended(loss(), 20.0).evidence(KILL))
    parts = [measured[f"{cause}_node_s"] for cause in CAUSES]
    assert sum(parts) == pytest.approx(measured["billed_node_s"], abs=0.01)
    assert measured["goodput"] == pytest.approx(parts[0] / measured["billed_node_s"], abs=1e-3)


def test_without_begins_only_the_bill_is_known() -> None:
    story = Story()
    story.up(0.0, "node-0")
    story.commit(1.0, 1, "node-0")
    _, _, measured = judge(ended(story, 2.0).evidence())
    assert measured["billed_node_s"] == 2.0
    assert [measured[f"{cause}_node_s"] for cause in CAUSES] == [None] * 5
    assert measured["goodput"] is None
