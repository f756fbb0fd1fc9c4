"""A node that one fault brings and another takes, before it had to take part."""

import pytest
from histories import KILL, Story, ended, loss, outcome, undisturbed

from chaosspot import history as h
from chaosspot.schedule import Pause, Trigger
from chaosspot.verdict import Outcome

PAUSE = Pause(on=Trigger(at_s=1.0), duration_s=2.0)
START_S = 120.0  # what a description allows to a start


def newcomer() -> Story:
    story = loss()
    story.up(12.0, "node-2", replaces="node-1")
    return story


@pytest.mark.parametrize(
    ("taken_t", "expected"), [(13.0, None), (12.0 + START_S, None), (12.1 + START_S, Outcome.FAIL)]
)
def test_a_newcomer_that_a_fault_takes_in_time_owes_nothing(
    taken_t: float, expected: Outcome | None
) -> None:
    story = newcomer()
    story.tell(h.FaultInjected, taken_t, fault=1, kind="kill", nodes=("node-2",))
    story.tell(h.FaultEffect, taken_t, "node-2", fault=1, what="gone")
    story.gone(taken_t, "node-2", by_itself=expected is not None, code=3)
    found = outcome("rejoin", ended(story, 200.0).evidence(KILL, KILL, rejoins=True))
    assert found is expected


def test_what_it_did_before_it_was_taken_counts() -> None:
    story = newcomer()
    story.step(13.0, 11, "node-0", "node-2", generation=3)
    story.kill(14.0, "node-2", fault=1)
    assert outcome("rejoin", ended(story).evidence(KILL, KILL, rejoins=True)) is Outcome.PASS


def test_who_is_killed_while_it_is_paused_does_not_come_back() -> None:
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind="pause", nodes=("node-1",))
    story.tell(h.FaultEffect, 5.1, "node-1", fault=0, what="paused")
    story.kill(6.0, "node-1", fault=1)
    story.step(7.0, 6, "node-0", generation=2)
    story.tell(h.FaultHealed, 8.0, fault=0)
    assert outcome("rejoin", ended(story).evidence(PAUSE, KILL, rejoins=True)) is None
