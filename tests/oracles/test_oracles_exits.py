"""Ends of nodes by themselves: what they say, and how often they come."""

from typing import Any

import pytest
from histories import KILL, NOTICE, Story, ended, outcome, undisturbed

from chaosspot import history as h
from chaosspot.oracles import ORACLES
from chaosspot.schedule import Terminate, Trigger
from chaosspot.trainers import Patterns
from chaosspot.verdict import Outcome

TERMINATE = Terminate(on=Trigger(at_s=1.0))


def messages(oracle: str, story: Story, *faults: Any, **fields: Any) -> list[str]:
    findings = ORACLES[oracle](ended(story).evidence(*faults, **fields))
    return [f.message for f in findings if f.outcome is Outcome.FAIL]


# exits


def ends(*reasons: str, code: int | None = 0, by_itself: bool = True, **told: Any) -> Story:
    """node-1 reports exits for these reasons and ends after step 5."""
    story = undisturbed(5)
    for rank, reason in enumerate(reasons):
        story.tell(h.Exit, 5.1, "node-1", reason=reason, rank=rank)
    story.gone(5.5, "node-1", by_itself=by_itself, code=code)
    return story


@pytest.mark.parametrize(
    ("reason", "code", "expected"),
    [
        ("finished", 0, Outcome.PASS),
        ("drained", 0, Outcome.PASS),
        ("error", 1, Outcome.PASS),
        ("error", 0, Outcome.FAIL),
        ("finished", 1, Outcome.FAIL),
        ("drained", -15, Outcome.FAIL),
        ("drained", None, None),
    ],
)
def test_a_code_fits_the_reason_that_was_reported(
    reason: str, code: int | None, expected: Outcome | None
) -> None:
    assert outcome("exits", ended(ends(reason, code=code)).evidence()) is expected


def test_the_messages_say_what_was_reported() -> None:
    assert messages("exits", ends("error")) == [
        "node-1 ended with code 0 although it reported its exit as 'error'"
    ]
    assert messages("exits", ends("drained", code=3)) == [
        "node-1 reported that it drained, and ended with code 3"
    ]


def test_who_was_ended_by_the_harness_is_not_judged() -> None:
    for story in (ends("error", by_itself=False), ends("finished", code=-9, by_itself=False)):
        assert outcome("exits", ended(story).evidence()) is None


@pytest.mark.parametrize(("ranks", "failed"), [(1, True), (2, False)])
def test_a_code_is_of_all_ranks_of_a_node(ranks: int, failed: bool) -> None:
    """A rank that failed without a word explains the code, whatever the others said."""
    story = ends("finished", code=1)
    assert bool(messages("exits", story, ranks_per_node=ranks)) is failed


def test_one_bad_reason_among_ranks_explains_a_code_but_not_0() -> None:
    assert messages("exits", ends("finished", "error", code=1), ranks_per_node=2) == []
    assert messages("exits", ends("finished", "error", code=0), ranks_per_node=2) != []


def test_a_silent_end_with_0_in_the_middle_of_a_step_is_a_failure() -> None:
    story = undisturbed(5)
    story.begin(5.2, 6, "node-1")
    story.gone(5.5, "node-1", by_itself=True, code=0)
    assert messages("exits", story) == ["node-1 ended with code 0 in the middle of step 6"]


def test_a_silent_end_with_0_is_a_failure_when_training_goes_on() -> None:
    story = ends()
    assert messages("exits", story) == []
    story = ends()
    story.step(7.0, 5, "node-0", generation=2)
    assert messages("exits", story) == []  # repeats, but goes no further
    story = ends()
    story.step(7.0, 6, "node-0", generation=2)
    assert messages("exits", story) == [
        "node-1 ended with code 0 after step 5, and training went on without it"
    ]


def test_a_silent_end_with_0_is_a_failure_where_others_report_theirs() -> None:
    story = ends()
    story.tell(h.Exit, 9.0, "node-0", reason="finished")
    assert messages("exits", story) == [
        "node-1 ended with code 0 and reported no exit, as others did"
    ]


@pytest.mark.parametrize("kind", [h.Drain, h.Leave])
def test_who_said_that_it_leaves_may_end_with_0(kind: type[h.Record]) -> None:
    story = undisturbed(5)
    story.tell(kind, 5.1, "node-1", step=5)
    story.gone(5.5, "node-1", by_itself=True, code=0)
    story.step(7.0, 6, "node-0", generation=2)
    assert messages("exits", story) == []


@pytest.mark.parametrize(
    ("fault", "node", "failed"),
    [
        (NOTICE, "node-1", False),
        (TERMINATE, "node-1", False),
        (KILL, "node-1", True),
        (NOTICE, "node-0", True),
    ],
)
def test_who_was_told_to_go_may_end_with_0(fault: Any, node: str, failed: bool) -> None:
    story = ends()
    story.tell(h.FaultInjected, 5.2, fault=0, kind=type(fault).kind, nodes=(node,))
    story.step(7.0, 6, "node-0", generation=2)
    assert bool(messages("exits", story, fault)) is failed


def test_a_former_life_explains_nothing() -> None:
    story = undisturbed(5)
    story.tell(h.Exit, 5.1, "node-1", reason="error")
    story.tell(h.NodeRestart, 5.2, "node-1", code=1, pid=0)
    story.tell(h.Exit, 8.0, "node-1", reason="finished", incarnation=1)
    story.gone(8.1, "node-1", by_itself=True, code=0)
    assert outcome("exits", ended(story).evidence()) is Outcome.PASS


def test_a_life_that_was_restarted_is_judged_too() -> None:
    story = undisturbed(5)
    story.tell(h.Exit, 5.1, "node-1", reason="finished")
    story.tell(h.NodeRestart, 5.2, "node-1", code=1, pid=0)
    assert messages("exits", story) == ["node-1 reported that it finished, and ended with code 1"]


def test_coordinators_are_not_judged() -> None:
    story = undisturbed(5)
    story.up(0.0, "coordinator", role="coordinator")
    story.gone(5.5, "coordinator", by_itself=True, code=0)
    story.step(7.0, 6, "node-0")
    assert outcome("exits", ended(story).evidence()) is None


def test_trainers_that_report_neither_begins_nor_exits_are_not_judged() -> None:
    story = Story()
    story.up(0.0, "node-0", "node-1")
    story.commit(1.0, 1, "node-0", "node-1")
    story.gone(1.5, "node-1", by_itself=True, code=0)
    story.commit(2.0, 2, "node-0")
    assert outcome("exits", ended(story).evidence()) is None
    begun = ends()
    begun.step(7.0, 6, "node-0", generation=2)
    patterns = Patterns(commit=r"step (?P<step>\d+)")
    assert outcome("exits", ended(begun).evidence(patterns=patterns)) is None


# restarts


def crashes(*times: float, commit_t: float | None = None) -> Story:
    story = undisturbed(5)
    for life, t in enumerate(times):
        if commit_t is not None and commit_t < t:
            story.commit(commit_t, 6, "node-1", incarnation=life)
            commit_t = None
        story.tell(h.NodeRestart, t, "node-1", code=7, pid=0)
    return story


@pytest.mark.parametrize(
    ("times", "expected"),
    [((), None), ((6.0,), Outcome.PASS), ((6.0, 7.0), Outcome.PASS), ((6, 7, 8), Outcome.FAIL)],
)
def test_three_failures_in_a_row_are_a_loop(
    times: tuple[float, ...], expected: Outcome | None
) -> None:
    evidence = ended(crashes(*times)).evidence()
    assert outcome("restarts", evidence) is expected
    if times:
        (finding,) = ORACLES["restarts"](evidence)
        assert finding.measured == len(times)


def test_a_commit_in_between_breaks_the_row() -> None:
    assert messages("restarts", crashes(6.0, 7.0, 8.0, commit_t=7.5)) == []
    assert messages("restarts", crashes(6.0, 7.0, 8.0, commit_t=5.5)) != []
    story = crashes(6.0, 7.0)
    story.commit(7.5, 6, "node-0")  # another node's
    story.tell(h.NodeRestart, 8.0, "node-1", code=7, pid=0)
    assert messages("restarts", story) == [
        "node-1 failed 3 times without a commit, the last with code 7"
    ]


@pytest.mark.parametrize(
    ("end", "failed"),
    [
        ({"by_itself": True, "code": 1}, True),
        ({"by_itself": True, "code": 0}, False),
        ({"by_itself": True, "code": None}, False),
        ({"by_itself": False, "code": -9}, False),
    ],
)
def test_the_last_end_counts_when_it_is_a_failure_of_its_own(
    end: dict[str, Any], failed: bool
) -> None:
    story = crashes(6.0, 7.0)
    story.gone(8.0, "node-1", **end)
    assert bool(messages("restarts", story)) is failed


def test_those_who_stand_in_for_a_node_are_one_row_with_it() -> None:
    story = undisturbed(5)
    story.up(6.0, "node-9")
    for t, node, replaces in (
        (6.0, "node-1", None),
        (8.0, "node-2", "node-1"),
        (10.0, "node-3", "node-2"),
    ):
        if replaces:
            story.up(t - 1, node, replaces=replaces)
        story.gone(t, node, by_itself=True, code=1)
        story.gone(t, f"other-{node}", by_itself=True, code=1)
    assert messages("restarts", story) == [
        "node-3 failed 3 times without a commit, the last with code 1"
    ]


def test_a_node_that_comes_back_under_its_own_name_is_one_row() -> None:
    story = undisturbed(5)
    for t in (6.0, 8.0, 10.0):
        story.gone(t, "node-1", by_itself=True, code=1)
        story.up(t + 1, "node-1", replaces="node-1")
    assert len(messages("restarts", story)) == 1


def test_the_longest_row_is_shown_even_if_it_ended_well() -> None:
    story = crashes(6.0, 7.0, 8.0)
    story.commit(9.0, 6, "node-1", incarnation=3)
    story.tell(h.NodeRestart, 10.0, "node-1", code=1, pid=0)
    assert len(messages("restarts", story)) == 1
