"""A trace as a schedule: cut, scaled, hurried, with and without notices."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot import toml
from chaosspot.content import content_root
from chaosspot.schedule import Grow, Kill, Notice, Schedule
from chaosspot.traces import Trace, TraceError, load, loads, planned
from chaosspot.traces.planned import scaled
from chaosspot.traces.spans import seconds

FIXTURES = content_root() / "fixtures" / "traces"
PUBLIC = Path(os.environ.get("CHAOSSPOT_TRACES") or content_root().parent / "shared" / "traces")
STAIRS = "0,8\n60,8\n60,5\n120,5\n120,6\n180,6\n180,8\n240,8\n"


def stairs() -> Trace:
    return loads(STAIRS, name="stairs.csv", time_unit="s")


def told(plan: Schedule) -> list[tuple[str, float | None, int | None]]:
    """Each fault: its kind, when, and how many."""
    return [
        (f.kind, f.on.at_s, f.count if isinstance(f, Grow) else f.target and f.target.count)
        for f in plan.fault
    ]


def after(plan: Schedule) -> list[int]:
    """How many nodes there are after each moment, and at the start; notices keep to their lead."""
    changes: dict[float, int] = {}
    for fault in plan.fault:
        at_s = fault.on.at_s or 0.0
        if isinstance(fault, Grow):
            changes[at_s] = changes.get(at_s, 0) + fault.count
        elif fault.replace_after_s is None:
            assert fault.target is not None
            at_s = round(at_s + (fault.lead_s if isinstance(fault, Notice) else 0.0), 3)
            changes[at_s] = changes.get(at_s, 0) - (fault.target.count or 0)
    here = [plan.cluster.group[0].count]
    for at_s in sorted(changes):
        here.append(here[-1] + changes[at_s])
    return here


def test_removals_are_kills_and_additions_growth() -> None:
    plan = planned(stairs(), nodes=8)
    assert told(plan) == [("kill", 60, 3), ("grow", 120, 1), ("grow", 180, 2)]
    assert plan.cluster.group[0].count == 8
    plan.check()


def test_what_comes_in_the_moment_of_a_loss_replaces_it() -> None:
    trace = loads("0,add,a\n0,add,b\n60000,remove,a\n60000,add,c\n120000,remove,c\n")
    one, other = planned(trace, nodes=2).fault
    assert isinstance(one, Kill)
    assert one.replace_after_s == 0.0
    assert other.replace_after_s is None


def test_speed_shortens_gaps_and_never_a_lead() -> None:
    plan = planned(stairs(), nodes=8, speed=60, lead_s=20)
    assert told(plan) == [("notice", 1, 3), ("grow", 22, 1), ("grow", 23, 2)]
    (notice,) = (f for f in plan.fault if isinstance(f, Notice))
    assert notice.lead_s == 20
    slow = planned(stairs(), nodes=8, lead_s=20)
    assert told(slow) == [("notice", 60, 3), ("grow", 140, 1), ("grow", 200, 2)]


def test_a_node_that_comes_too_late_for_a_notice_goes_without_one() -> None:
    """Both are noticed by the second loss; the third comes before who would have had its notice."""
    text = "0,2\n60,2\n60,1\n120,1\n120,0\n180,0\n180,2\n240,2\n240,1\n"
    plan = planned(loads(text, time_unit="s"), nodes=2, speed=60, lead_s=10)
    kinds = [("notice", 1, 1), ("notice", 2, 1), ("grow", 13, 2), ("kill", 14, 1)]
    assert told(plan) == kinds
    assert after(plan) == [2, 1, 0, 2, 1]


def test_nodes_are_the_largest_number_of_the_part() -> None:
    trace = stairs()
    assert told(planned(trace, nodes=4)) == [("kill", 60, 1), ("grow", 180, 1)]  # 4, 3, 3, 4
    part = planned(trace, nodes=3, from_s=70, to_s=200)  # 5, 6, 8 nodes
    assert part.cluster.group[0].count == 2
    assert told(part) == [("grow", 110, 1)]


def test_a_part_counts_from_its_start() -> None:
    assert told(planned(stairs(), nodes=8, from_s=60, speed=2)) == [
        ("grow", 30, 1),
        ("grow", 60, 2),
    ]


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    number = draw(st.integers(2, 20))
    lives = st.integers(0, 40)
    counts = [draw(st.integers(1, 40)), *(draw(lives) for _ in range(number - 1))]
    churn = [draw(st.integers(0, 3)) for _ in range(number - 1)]
    lost = [0] + [
        min(before, max(0, before - there) + more)
        for before, there, more in zip(counts, counts[1:], churn, strict=False)
    ]
    return Trace(
        name="drawn",
        times_s=np.arange(number, dtype=float) * 60,
        counts=np.array(counts),
        lost=np.array(lost),
        end_s=number * 60.0,
        held=True,
    )


@given(traces(), st.integers(1, 60))
def test_numbers_are_the_traces_in_proportion(trace: Trace, nodes: int) -> None:
    """Of nodes after each change, rounded; of losses, falls and what was replaced at once."""
    scale = nodes / trace.most_nodes
    here, changes = scaled(trace, nodes)
    assert here == int(trace.counts[0] * scale + 0.5)
    at = {change.t_s: change for change in changes}
    falls = replaced = lost = 0
    before = int(trace.counts[0])
    for t_s, count, gone in zip(
        trace.times_s[1:].tolist(), trace.counts[1:].tolist(), trace.lost[1:].tolist(), strict=True
    ):
        then = int(count * scale + 0.5)
        falls += max(0, here - then)
        replaced += gone - max(0, before - count)
        if (change := at.get(t_s)) is not None:
            assert 0 <= change.lost <= here
            assert change.gained >= 0
            assert then == here + change.gained - change.lost
            lost += change.lost
        assert then == here or change is not None
        here, before = then, count
    assert here <= nodes
    assert falls <= lost <= falls + int(replaced * scale + 0.5)


@given(
    traces(),
    st.integers(1, 12),
    st.sampled_from([0.0, 7.0, 90.0, 500.0]),
    st.sampled_from([1.0, 60.0, 1e5]),
)
def test_with_notices_the_same_nodes_are_there_later(
    trace: Trace, nodes: int, lead_s: float, speed: float
) -> None:
    """However fast: moments that become one keep what is lost in each."""
    try:
        sudden = planned(trace, nodes=nodes, speed=speed)
    except TraceError:
        return
    told_of = planned(trace, nodes=nodes, speed=speed, lead_s=lead_s)
    assert after(told_of)[-1] == after(sudden)[-1]
    assert min(after(told_of)) >= 0
    assert {f.lead_s for f in told_of.fault if isinstance(f, Notice)} <= {lead_s}


def test_a_schedule_of_a_trace_is_written_and_read_like_any_other() -> None:
    plan = planned(load(FIXTURES / "rough-hour.csv", licence="Apache-2.0"), nodes=8, speed=60)
    assert toml.loads(toml.dumps(plan), Schedule) == plan
    assert plan.title == "rough-hour.csv from 0 h to 1 h, 60 times as fast, on 8 nodes"
    assert "60 times shorter" in plan.does_not_prove


def test_what_was_probed_is_said_to_prove_less() -> None:
    plan = planned(load(FIXTURES / "one-zone.json", one_means="unavailable"), nodes=2)
    assert "a drop is no kill" in plan.does_not_prove
    assert told(plan) == [("kill", 900, 2), ("grow", 1500, 2), ("kill", 2700, 2), ("grow", 3000, 2)]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "x: the trace is empty"),
        ("0,5\n", {"time_unit": "s"}, "x: has one point in time only"),
        ("0,add,a\n", {}, "x: has one point in time only"),
        ("60000,add,a\n0,add,b\n", {}, r"x:2: the time 0\.0 s goes back"),
        ("9,5\n3,4\n", {"time_unit": "s"}, "x:2: the time 3 goes back"),
        ("0,add,a\n60000,remove,b\n", {}, "x:2: remove of 'b', which is not there$"),
        (
            "0,remove,a\n0,remove,b\n60000,add,a\n",
            {},
            "x:1: remove of 'a', which is not there; all would .* add and remove are swapped",
        ),
        ('{"metadata": {"gap_seconds": 60}, "data": [1, 1]}', {}, "say one_means"),
        (
            '{"metadata": {"gap_seconds": 60}, "data": [1, 1]}',
            {"one_means": "unavailable"},
            "with one_means = 'unavailable' it never has a node: all 2 values are 1",
        ),
        (
            '{"metadata": {"gap_seconds": 60}, "data": [3, 1]}',
            {"one_means": "unavailable"},
            "holds counts up to 3",
        ),
        (
            '{"metadata": {"gap_seconds": 60}, "data": [0, 1, 0]}',
            {"one_means": "available"},
            "0 nodes at its start are none of 4 .* 1 are there 60 s later; is its polarity right",
        ),
        ("0,add,a\n60000,add,b\n", {"nodes": 1, "from_s": 0.0, "to_s": 30.0}, "nothing happens"),
        ("0,add,a\n60000,remove,a\n", {"to_s": 61.0}, "to 61 s is after its end at 60 s"),
        ("0,add,a\n60000,remove,a\n", {"from_s": 60.0}, "no part from"),
        ("0,add,a\n60000,remove,a\n", {"speed": 0.0}, r"speed = 0\.0: above 0"),
        ("0,add,a\n60000,remove,a\n", {"lead_s": -1.0}, r"lead_s = -1\.0: at least 0"),
        ("0,add,a\n60000,remove,a\n", {"nodes": 0}, "nodes = 0: at least 1"),
    ],
)
def test_what_makes_no_schedule_is_refused(
    text: str, options: dict[str, object], message: str
) -> None:
    of_load = {k: v for k, v in options.items() if k in ("time_unit", "one_means")}
    of_plan = {k: v for k, v in options.items() if k not in of_load}
    with pytest.raises(ValueError, match=message) as caught:
        planned(loads(text, name="x", **of_load), **{"nodes": 4, **of_plan})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("5400", 5400), ("90m", 5400), ("1.5h", 5400), ("2d", 172800), ("7s", 7)]
)
def test_times_are_said_as_people_do(text: str, expected: float) -> None:
    assert seconds(text, "--from") == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "1e3", "1.5 hours", "1,5h", "9" * 400])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--from '"):
        seconds(text, "--from")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bamboo/traces/p3-trace.csv", 13),
        ("parcae/aws/traces/bert/trace_hh_55_65.txt", 6),
    ],
)
def test_an_hour_of_a_public_trace(name: str, expected: int) -> None:
    path = PUBLIC / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not here; CHAOSSPOT_TRACES says where to look")
    trace = load(path)
    hour = {} if path.suffix == ".txt" else {"from_s": 1800.0, "to_s": 5400.0}
    plan = planned(trace, nodes=8, speed=60, **hour)
    assert len(plan.fault) == expected
    part = trace.cut(**hour)
    assert after(plan)[-1] == int(part.counts[-1] * 8 / part.most_nodes + 0.5)
    assert json.loads(json.dumps([f.on.at_s for f in plan.fault]))[-1] <= 60
    plan.check()
