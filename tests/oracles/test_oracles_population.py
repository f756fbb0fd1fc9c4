"""How many workers there were over time."""

from __future__ import annotations

from histories import KILL, Story, ended, loss

from chaosspot.oracles.figures import measure


def test_nodes_over_time_are_those_that_lived() -> None:
    story = loss()
    story.up(8.0, "node-2", "node-3", replaces="node-1")
    story.up(8.0, "coordinator", role="coordinator")
    story.gone(9.0, "node-2")
    story.gone(9.0, "coordinator")
    evidence = ended(story, 12.0).evidence(KILL)
    assert measure(evidence)["nodes_over_time"] == [(0, 2), (5.1, 1), (8, 3), (9, 2), (12, 2)]


def test_those_that_end_with_the_run_are_no_change() -> None:
    story = ended(loss(), 12.0)
    story.gone(12.1, "node-0")
    assert measure(story.evidence(KILL))["nodes_over_time"] == [(0, 2), (5.1, 1), (12, 1)]


def test_without_nodes_there_is_nothing_over_time() -> None:
    assert measure(ended(Story()).evidence())["nodes_over_time"] == []


def test_the_first_nodes_are_there_when_the_last_of_them_is() -> None:
    """They come within moments of each other, which is no growth."""
    story = Story()
    story.up(0.0, "node-0")
    story.up(0.4, "node-1")
    story.up(2.4, "node-2")
    evidence = ended(story, 3.4).evidence()
    assert measure(evidence)["nodes_over_time"] == [(0, 2), (2, 3), (3, 3)]
