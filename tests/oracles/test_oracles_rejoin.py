"""Whoever is new, or was paused, takes part again."""

from typing import Any

import pytest
from histories import KILL, Story, ended, loss, outcome, undisturbed

from chaosspot import history as h
from chaosspot.oracles import ORACLES
from chaosspot.schedule import Hold, Pause, Trigger
from chaosspot.verdict import Outcome

PAUSE = Pause(on=Trigger(at_s=1.0), duration_s=2.0)
HOLD = Hold(on=Trigger(point="p"), duration_s=2.0)
START_S = 120.0  # what a description allows to a start


def joined(*, commit_t: float | None, up_t: float = 12.0, replaces: str | None = "node-1") -> Story:
    story = loss()
    story.up(up_t, "node-2", replaces=replaces)
    if commit_t is not None:
        story.step(commit_t, 11, "node-0", "node-2", generation=3)
    return story


@pytest.mark.parametrize(
    ("commit_t", "end_t", "expected"),
    [
        (12.0 + START_S, 200.0, Outcome.PASS),
        (12.1 + START_S, 200.0, Outcome.FAIL),
        (None, 12.0 + START_S, Outcome.UNKNOWN),
        (None, 12.1 + START_S, Outcome.FAIL),
    ],
)
def test_a_newcomer_commits_within_the_time_of_a_start(
    commit_t: float | None, end_t: float, expected: Outcome
) -> None:
    story = ended(joined(commit_t=commit_t), end_t)
    assert outcome("rejoin", story.evidence(KILL, rejoins=True)) is expected
    assert outcome("rejoin", story.evidence(KILL)) is None


@pytest.mark.parametrize(
    ("by_itself", "expected"), [(True, Outcome.FAIL), (False, Outcome.UNKNOWN)]
)
def test_a_newcomer_that_ends_without_a_commit(by_itself: bool, expected: Outcome) -> None:
    story = joined(commit_t=None)
    story.gone(13.0, "node-2", by_itself=by_itself, code=3)
    story.gone(13.0, "node-1", by_itself=not by_itself, code=3)
    assert outcome("rejoin", ended(story).evidence(KILL, rejoins=True)) is expected


def test_a_newcomer_that_ends_after_its_commit_has_taken_part() -> None:
    story = joined(commit_t=13.0)
    story.gone(14.0, "node-2", by_itself=True, code=3)
    assert outcome("rejoin", ended(story).evidence(KILL, rejoins=True)) is Outcome.PASS


def test_the_first_nodes_are_no_newcomers_but_those_who_come_back_are() -> None:
    assert outcome("rejoin", ended(undisturbed()).evidence(rejoins=True)) is None
    story = loss()
    story.up(12.0, "node-1", replaces="node-1")
    story.up(12.0, "coordinator-1", role="coordinator")
    assert outcome("rejoin", ended(story).evidence(KILL, rejoins=True)) is Outcome.UNKNOWN
    story.commit(13.0, 11, "node-1", generation=3)
    findings = list(ORACLES["rejoin"](ended(story).evidence(KILL, rejoins=True)))
    assert [f.message for f in findings] == [
        "node-1 took part 1.0 s after it came in place of node-1"
    ]


def test_one_more_node_is_a_newcomer_too() -> None:
    story = joined(commit_t=13.0, replaces=None)
    (finding,) = ORACLES["rejoin"](ended(story).evidence(KILL, rejoins=True))
    assert finding.message == "node-2 took part 1.0 s after it came as one more"


@pytest.mark.parametrize(("fault", "what"), [(PAUSE, "paused"), (HOLD, "held")])
@pytest.mark.parametrize(("back", "expected"), [(True, Outcome.PASS), (False, Outcome.UNKNOWN)])
def test_who_was_paused_takes_part_again(
    fault: Any, what: str, back: bool, expected: Outcome
) -> None:
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind=type(fault).kind, nodes=("node-1",))
    story.tell(h.FaultEffect, 5.1, "node-1", fault=0, what=what)
    story.step(6.0, 6, "node-0", generation=2)
    story.tell(h.FaultHealed, 8.0, fault=0)
    if back:
        story.step(9.0, 7, "node-0", "node-1", generation=3)
    assert outcome("rejoin", ended(story).evidence(fault, rejoins=True)) is expected
