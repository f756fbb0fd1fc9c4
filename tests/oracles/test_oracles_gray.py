"""Slow, stuck and unheard nodes: what is measured of each, on both sides of every bound."""

from __future__ import annotations

from typing import Any

import pytest
from histories import Story, ended, undisturbed

from chaosspot import history as h
from chaosspot.oracles import ORACLES
from chaosspot.schedule import Expectation, Hold, Link, Network, Pause, Toxic, Trigger
from chaosspot.verdict import Finding, Outcome

NODES = ("node-0", "node-1", "node-2")


def gray(story: Story, unit: str, *faults: Any, **fields: Any) -> Finding | None:
    """The finding with that unit: x of the straggler, s of the first of the other two."""
    found = [f for f in ORACLES["gray"](story.evidence(*faults, **fields)) if f.unit == unit]
    return found[0] if found else None


def unheard(story: Story, *faults: Any, **fields: Any) -> Finding | None:
    found = ORACLES["gray"](story.evidence(*faults, **fields))
    return next((f for f in found if "heard last" in f.message), None)


def paced(*slow_s: float, steps: int = 12, told: bool = True, nodes: int = 3) -> Story:
    """Steps of 1 s; node-2 computes ``slow_s[step]`` seconds, its last value on; the others 0.1."""
    story = Story()
    story.up(0.0, *NODES[:nodes])
    for step in range(1, steps + 1):
        own_s = slow_s[min(step, len(slow_s)) - 1]
        for node in NODES[:nodes]:
            busy_s = own_s if node == NODES[nodes - 1] else 0.1
            fields = {"busy_s": busy_s} if told else {}
            story.begin(step - (0.9 if told else busy_s), step, node, world=nodes)
            story.commit(float(step), step, node, world=nodes, **fields)
    return ended(story, steps + 0.5)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("nodes", [2, 3])
def test_a_node_is_as_slow_as_its_steps_in_its_peers_median(told: bool, nodes: int) -> None:
    finding = gray(paced(0.4, steps=10, told=told, nodes=nodes), "x")
    assert finding is not None
    assert finding.measured == pytest.approx(4.0)
    assert finding.message == f"{NODES[nodes - 1]} took 4.0 times its peers' median, steps 1 to 10"
    assert (finding.outcome, finding.bound) == (Outcome.PASS, None)  # measured, not judged


@pytest.mark.parametrize(("bound", "expected"), [(4.01, Outcome.PASS), (3.99, Outcome.FAIL)])
@pytest.mark.parametrize("said_by", ["promise", "expectation"])
def test_a_straggler_is_judged_by_what_is_promised_or_expected(
    bound: float, expected: Outcome, said_by: str
) -> None:
    said: dict[str, Any] = {"straggler_factor": bound}
    fields = said if said_by == "promise" else {"expect": Expectation(**said)}
    finding = gray(paced(0.4), "x", **fields)
    assert finding is not None
    assert (finding.outcome, finding.bound) == (expected, bound)


def test_what_is_expected_stands_above_what_is_promised() -> None:
    lenient = Expectation(straggler_factor=9.0)
    finding = gray(paced(0.4), "x", expect=lenient, straggler_factor=2.0)
    assert finding is not None
    assert finding.outcome is Outcome.PASS


def test_one_long_step_makes_no_straggler_and_two_do() -> None:
    once = gray(paced(0.1, 0.1, 0.1, 5.0, 0.1), "x")
    twice = gray(paced(0.1, 0.1, 0.1, 5.0, 5.0, 0.1), "x")
    assert once is not None
    assert once.measured == pytest.approx(1.0)
    assert twice is not None
    assert twice.measured == pytest.approx((8 * 0.1 + 5.0) / 0.9)


@pytest.mark.parametrize(("steps", "measured"), [(9, False), (10, True)])
def test_fewer_than_ten_steps_say_nothing(steps: int, measured: bool) -> None:
    assert (gray(paced(0.4, steps=steps), "x") is not None) is measured


def test_a_node_alone_has_no_peers() -> None:
    assert gray(paced(0.4, nodes=1), "x") is None


def test_a_step_that_ends_together_is_told_by_what_each_computed() -> None:
    """From begin to commit all take as long: the slowest's time."""
    story = paced(0.4)
    taken_s = [c.t - b.t for c in story.records for b in story.records if _same(b, c)]
    assert taken_s == pytest.approx([0.9] * 36)
    finding = gray(story, "x")
    assert finding is not None
    assert finding.measured == pytest.approx(4.0)


def _same(begin: h.Record, commit: h.Record) -> bool:
    both = isinstance(begin, h.Begin) and isinstance(commit, h.Commit)
    return both and (begin.step, begin.node) == (commit.step, commit.node)  # type: ignore[attr-defined]


# Heartbeat without progress.


def held(until: float = 20.0) -> Story:
    """node-1 commits nothing from 5 s on and lives; from 8 s on node-0 goes on without it."""
    story = undisturbed(5)
    for number in range(int(until) - 8):
        story.step(8.5 + number, 6 + number, "node-0", generation=2)
    return ended(story, until)


HOLD = Hold(on=Trigger(point="step.before-allreduce"))


def test_a_node_that_lives_and_commits_nothing_is_named() -> None:
    finding = gray(held(), "s", HOLD)
    assert finding is not None
    assert finding.measured == pytest.approx(15.0)
    assert finding.message == (
        "node-1 lived, could be heard and committed nothing for 15.00 s, "
        "in which others got on by 12 steps"
    )
    assert finding.outcome is Outcome.PASS


@pytest.mark.parametrize(("bound", "expected"), [(15.1, Outcome.PASS), (14.9, Outcome.FAIL)])
def test_it_is_judged_by_a_promise(bound: float, expected: Outcome) -> None:
    finding = gray(held(), "s", HOLD, stuck_s=bound)
    assert finding is not None
    assert finding.outcome is expected


@pytest.mark.parametrize("end", ["gone", "leave", "drain", "exit"])
def test_who_goes_is_not_stuck_from_then_on(end: str) -> None:
    story = undisturbed(5)
    if end == "gone":
        story.gone(6.0, "node-1")
    else:
        fields = {"reason": "drained"} if end == "exit" else {}
        story.tell(h.EVENTS[end], 6.0, "node-1", **fields)
    for number in range(12):
        story.step(6.5 + number, 6 + number, "node-0", generation=2)
    finding = gray(ended(story, 18.0), "s")
    assert finding is not None
    assert finding.measured == pytest.approx(1.5)  # node-0, from 5.0 to 6.5


def impaired(story: Story, fault: Any, node: str, start: float, end: float) -> None:
    story.tell(h.FaultInjected, start, fault=0, kind=fault.kind, nodes=(node,))
    what = "paused" if isinstance(fault, Pause) else "impaired"
    story.tell(h.FaultEffect, start, node, fault=0, what=what)
    story.tell(h.FaultHealed, end, fault=0)


def cut(link: Link = "coordinator", *, cuts: bool = True) -> Network:
    toxic = (Toxic(type="timeout"),)
    return Network(on=Trigger(at_s=1.0), link=link, toxic=toxic, cuts=cuts)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Pause(on=Trigger(at_s=1.0)), 7.0),  # of 15 s it is paused from 6 to 13 s
        (cut(), 7.0),
        (cut(cuts=False), 15.0),
        (cut("store"), 15.0),
    ],
)
def test_time_in_which_it_cannot_be_heard_is_no_heartbeat(fault: Any, expected: float) -> None:
    story = held()
    impaired(story, fault, "node-1", 6.0, 13.0)
    finding = gray(story, "s", fault)
    assert finding is not None
    assert finding.measured == pytest.approx(expected)


def test_reported_heartbeats_are_what_counts() -> None:
    story = held()
    for t in (3.0, 6.0, 9.5):
        story.tell(h.Other, t, "node-1", name="heartbeat")
    finding = gray(story, "s", HOLD)
    assert finding is not None
    assert finding.measured == pytest.approx(4.5)


# Progress without heartbeat.


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(cut(), 1.5), (cut(cuts=False), None), (cut("store"), None), (cut("metadata"), None)],
)
def test_a_step_begun_while_its_coordinator_cannot_hear_it_is_progress_unheard(
    fault: Network, expected: float | None
) -> None:
    """Steps of node-1 begin half a second before each full second; it is cut off from 5 to 7 s."""
    story = undisturbed(10)
    impaired(story, fault, "node-1", 5.0, 7.0)
    finding = unheard(story, fault)
    if expected is None:
        assert finding is None
        return
    assert finding is not None
    assert finding.measured == pytest.approx(expected)
    assert finding.message.startswith("node-1 began step 7, which it committed, 1.50 s after")
    assert finding.outcome is Outcome.PASS


@pytest.mark.parametrize(("bound", "expected"), [(1.51, Outcome.PASS), (1.49, Outcome.FAIL)])
def test_it_is_judged_by_an_expectation(bound: float, expected: Outcome) -> None:
    story = undisturbed(10)
    impaired(story, cut(), "node-1", 5.0, 7.0)
    finding = unheard(story, cut(), expect=Expectation(unheard_s=bound))
    assert finding is not None
    assert finding.outcome is expected


def test_the_step_in_flight_when_it_was_cut_off_is_no_progress_unheard() -> None:
    story = undisturbed(6)
    impaired(story, cut(), "node-1", 5.7, 9.0)  # step 6 was begun at 5.5
    finding = unheard(story, cut())
    assert finding is not None
    assert finding.measured == 0


def test_a_process_that_stops_its_heartbeats_and_goes_on_is_named() -> None:
    story = undisturbed(10)
    for node, last in (("node-0", 10), ("node-1", 4)):
        for second in range(last):
            story.tell(h.Other, float(second), node, name="heartbeat")
    finding = unheard(ended(story))
    assert finding is not None
    assert finding.measured == pytest.approx(6.5)  # from 3.0 to 9.5
    assert "node-1 began step 10" in finding.message


def test_nothing_is_said_of_a_run_without_commits() -> None:
    story = Story()
    story.up(0.0, "node-0")
    assert list(ORACLES["gray"](ended(story).evidence())) == []
