"""Who takes part, and whose work counts."""

from typing import Any

import pytest
from histories import KILL, Story, ended, loss, outcome, undisturbed

from chaosspot import history as h
from chaosspot.oracles import ORACLES
from chaosspot.trainers import Patterns
from chaosspot.verdict import Finding, Outcome


def failures(story: Story, *faults: Any, **fields: Any) -> list[str]:
    findings: list[Finding] = list(ORACLES["membership"](ended(story).evidence(*faults, **fields)))
    return [f.message for f in findings if f.outcome is Outcome.FAIL]


def test_one_world_in_each_attempt_passes() -> None:
    (finding,) = ORACLES["membership"](ended(loss()).evidence(KILL))
    assert finding.outcome is Outcome.PASS
    assert finding.measured == 11


@pytest.mark.parametrize("kind", ["begin", "commit"])
def test_two_worlds_in_one_attempt_are_a_failure(kind: str) -> None:
    story = undisturbed(4)
    story.begin(4.5, 5, "node-0", world=2)
    if kind == "begin":
        story.begin(4.5, 5, "node-1", world=3)
    else:
        story.begin(4.5, 5, "node-1", world=2)
        story.commit(5.0, 5, "node-1", world=3)
    assert failures(story) == ["the world of step 5, generation 1: node-0 says 2, node-1 says 3"]


def test_another_world_in_another_attempt_is_none_of_it() -> None:
    story = undisturbed(4)
    story.begin(4.5, 5, "node-0", world=2)
    story.step(5.0, 5, "node-1", generation=2, world=1)
    assert failures(story) == []


def test_a_world_that_is_not_reported_is_not_compared() -> None:
    story = Story()
    story.begin(0.5, 1, "node-0", world=0)
    story.begin(0.5, 1, "node-1", world=2)
    assert failures(story) == []
    story = Story()
    story.commit(1.0, 1, "node-0", world=0)
    assert outcome("membership", ended(story).evidence()) is None


def entry(story: Story, what: str, t: float, step: int, node: str, **fields: Any) -> None:
    if what == "commit":
        story.commit(t, step, node, world=0, **fields)
    else:
        story.saved(t, step, node, what, **fields)


@pytest.mark.parametrize(
    ("what", "t", "message"),
    [
        ("commit", 5.2, "node-1 committed step 5 after the node was gone (1 such reports)"),
        ("durable", 5.2, "node-1 made durable step 5 after the node was gone (1 such reports)"),
        ("durable", 5.1, None),
        ("local", 5.2, None),
    ],
)
def test_nothing_of_a_node_that_is_gone_may_count(what: str, t: float, message: str | None) -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    entry(story, what, t, 5, "node-1")
    story.step(7.0, 6, "node-0", generation=2)
    assert failures(story, KILL) == ([message] if message else [])


def test_lines_of_a_log_may_be_read_after_the_end() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    story.commit(5.2, 5, "node-1", world=0)
    patterns = Patterns(commit=r"step (?P<step>\d+)")
    assert failures(story, KILL, patterns=patterns) == []


@pytest.mark.parametrize(("incarnation", "failed"), [(0, True), (1, False)])
def test_only_the_present_life_of_a_restarted_node_counts(incarnation: int, failed: bool) -> None:
    story = undisturbed(5)
    story.tell(h.NodeRestart, 5.1, "node-1", code=1, pid=0)
    story.saved(6.0, 5, "node-1", incarnation=incarnation)
    assert bool(failures(story)) is failed


def left(*, leave_step: int = 5) -> Story:
    story = undisturbed(5)
    story.tell(h.Leave, 5.1, "node-1", step=leave_step, generation=1, world=1)
    story.step(6.0, 6, "node-0", generation=2)
    return story


def test_who_left_may_still_make_durable_what_it_held_once() -> None:
    story = left()
    story.saved(6.1, 5, "node-1")
    assert failures(story) == []
    story.saved(6.2, 5, "node-1")
    assert failures(story) == ["node-1 made durable step 5 after it had left (1 such reports)"]


@pytest.mark.parametrize("what", ["commit", "durable"])
def test_a_step_beyond_ones_leaving_is_a_failure(what: str) -> None:
    story = left(leave_step=0)  # a trainer need not say at which step it left
    entry(story, what, 6.1, 6, "node-1")
    assert "node-1" in failures(story)[0]
    assert "after it had left" in failures(story)[0]


@pytest.mark.parametrize("kind", [h.Join, h.Restore])
def test_who_comes_back_takes_part_again(kind: type[h.Record]) -> None:
    story = left()
    story.tell(kind, 6.1, "node-1", step=6, **({"source": "peer"} if kind is h.Restore else {}))
    story.step(7.0, 7, "node-0", "node-1", generation=3)
    assert failures(story) == []


def left_behind(
    *, step: int = 6, own: bool = True, state: str = "", saved_t: float = 9.0
) -> list[str]:
    """node-1 stands still in step 6 while node-0 goes on; then it makes a step durable."""
    story = undisturbed(5)
    if own:
        story.begin(5.5, 6, "node-0", "node-1")
    for number in (6, 7, 8):
        story.step(float(number) + 0.5, number, "node-0", generation=2)
    if state == "restored":
        story.restored(8.9, step, "node-1")
    if state == "committed":
        story.commit(8.9, step, "node-1", generation=1, world=2)
    story.saved(saved_t, step, "node-1")
    return failures(story)


def test_a_zombies_snapshot_is_a_failure() -> None:
    message = "node-1 made durable step 6 although training had gone on without it"
    assert left_behind() == [f"{message} (1 such reports)"]
    assert left_behind(state="committed") == [f"{message} (1 such reports)"]


def test_a_snapshot_of_the_lineages_own_state_does_no_harm_late() -> None:
    assert left_behind(step=5) == []
    assert left_behind(state="restored") == []


def test_nobody_is_left_behind_before_a_later_step_is_committed_without_it() -> None:
    assert left_behind(saved_t=7.5) == []
    assert left_behind(saved_t=7.6) != []
    assert left_behind(step=8) == []


def test_a_process_that_never_said_what_it_took_part_in_is_not_judged() -> None:
    story = undisturbed(5)
    story.saved(9.0, 3, "node-7")
    assert failures(story) == []


def test_a_member_of_the_latest_attempt_is_not_left_behind() -> None:
    story = undisturbed(5)
    story.step(6.0, 6, "node-0", "node-2", generation=2)
    story.saved(6.1, 4, "node-2")  # a step from before it came
    assert failures(story) == []
    story.step(7.0, 7, "node-0", generation=3)
    story.saved(7.1, 4, "node-2")
    assert len(failures(story)) == 1
