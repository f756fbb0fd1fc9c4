"""Traces: what is read from each format, and the traps of public copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chaosspot.content import content_root
from chaosspot.traces import load, loads
from chaosspot.traces.trace import Trace, TraceError, cut_to_shortest, joined_ticks

FIXTURES = content_root() / "fixtures" / "economics"
EVENTS = "0,add,node1\n0,add,node2\n60000,remove,node1\n60000,add,node3\n120000,remove,node3\n"


def series(data: list[int], gap_s: float = 300) -> str:
    return json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data})


def seen(trace: Trace) -> tuple[list[float], list[int], list[int], float]:
    return trace.times_s.tolist(), trace.counts.tolist(), trace.lost.tolist(), trace.end_s


def test_events_keep_a_loss_that_was_made_up_for_at_once() -> None:
    trace = loads(EVENTS)
    assert seen(trace) == ([0, 60, 120], [2, 2, 1], [0, 1, 1], 120)
    assert trace.gained.tolist() == [2, 1, 0]
    assert trace.held
    assert trace.events == 2


@pytest.mark.parametrize("line_end", ["\r\n", "\r", "\n\n"])
def test_line_ends_do_not_matter(line_end: str) -> None:
    assert seen(loads(EVENTS.replace("\n", line_end))) == seen(loads(EVENTS))


def test_a_trace_begins_with_its_first_event() -> None:
    """What was there before is not known: it was not zero nodes for eight minutes."""
    late = "480000,add,node1\n480000,add,node2\n540000,remove,node1\n"
    assert seen(loads(late)) == ([0, 60], [2, 1], [0, 1], 60)


def test_segments_are_lines_of_json() -> None:
    text = (
        '[0, "add", {"nodes": ["a", "b"], "duration": 60000}]\n'
        '[60000, "no-op", {"nodes": []}]\n'
        '[120000, "remove", {"nodes": ["a", "b"]}]\n'
        '[180000, "DONE", {}]\n'
    )
    assert seen(loads(text)) == ([0, 60, 120, 180], [2, 2, 0, 0], [0, 0, 2, 0], 180)


def test_counts_hold_for_one_gap_each() -> None:
    trace = loads(series([4, 4, 1, 3]))
    assert seen(trace) == ([0, 300, 600, 900], [4, 4, 1, 3], [0, 0, 3, 0], 1200)
    assert not trace.held
    assert loads(series([4, 1]), held=True).held


def test_polarity_is_said_or_nothing_is_read() -> None:
    """Copies of one public series circulate with either meaning; the other is the complement."""
    text = series([1, 1, 0, 1])
    with pytest.raises(TraceError, match="say one_means, available or unavailable"):
        loads(text)
    assert loads(text, one_means="available").counts.tolist() == [1, 1, 0, 1]
    assert loads(text, one_means="unavailable").counts.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("data", [[0, 0, 0], [1, 1, 1]])
def test_polarity_is_asked_for_even_if_nothing_changes(data: list[int]) -> None:
    with pytest.raises(TraceError, match="say one_means"):
        loads(series(data))


def test_counts_have_no_polarity_to_invert() -> None:
    assert loads(series([3, 1]), one_means="available").counts.tolist() == [3, 1]
    with pytest.raises(TraceError, match="holds counts up to 3"):
        loads(series([3, 1]), one_means="unavailable")
    with pytest.raises(TraceError, match="events say what they mean"):
        loads(EVENTS, one_means="unavailable")


def test_each_step_of_a_staircase_is_two_lines() -> None:
    text = "0,0\n10,0\n10,4\n25,4\n25,2\n40,2\n"
    assert seen(loads(text, time_unit="s")) == ([0, 10, 25, 40], [0, 4, 2, 2], [0, 0, 2, 0], 40)
    assert loads(text, time_unit="h").end_s == 40 * 3600
    assert loads(text, time_unit="ms").end_s == 0.04


def test_a_staircase_does_not_say_its_unit() -> None:
    with pytest.raises(TraceError, match="say time_unit, ms, s or h"):
        loads("0,8\n10,4\n")


def test_dated_lines_that_step_back_are_sorted() -> None:
    text = "2021-12-10, 13:08:45, 80\n2021-12-10, 13:07:45, 82\n2021-12-11, 13:07:45, 70\n"
    trace = loads(text)
    assert seen(trace) == ([0, 60, 86400], [82, 80, 70], [0, 2, 10], 86400)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "the trace is empty"),
        ("\n \n", {}, "the trace is empty"),
        ("time;count\n1;2\n", {}, 'unknown format, starts with "time;count"; known: events'),
        ("1,2,3,4\n", {}, "unknown format"),
        (EVENTS + "180000,add\n", {}, ":6: '180000,add' is no event"),
        (EVENTS + "180000,stop,node2\n", {}, ":6: 'stop' is neither add nor remove"),
        (EVENTS + "60000,add,node9\n", {}, r":6: the time 60\.0 s goes back"),
        (EVENTS + "180000,remove,node1\n", {}, ":6: remove of 'node1', which is not there"),
        (EVENTS + "180000,add,node2\n", {}, ":6: add of 'node2', which is already there"),
        ("0,add,node1\n", {}, "one point in time only"),
        ("0,8\n", {"time_unit": "s"}, "one point in time only"),
        ("0,8\n1,x\n", {"time_unit": "s"}, ":2: '1,x' is no time,count"),
        ("0,8\n1,2.5\n", {"time_unit": "s"}, ":2: '1,2.5' is no time,count"),
        ("5,8\n1,2\n", {"time_unit": "s"}, ":2: the time 1 goes back"),
        ("0,8\n1,2\n", {"time_unit": "days"}, "time_unit = 'days': valid: ms, s, h"),
        (series([1, 0]), {"one_means": "up"}, "one_means = 'up': valid: available, unavailable"),
        (series([]), {}, "the trace is empty"),
        (series([2, -1]), {}, "holds a count of -1"),
        (series([2, 1], gap_s=0), {}, r"gap_seconds = 0\.0: above 0"),
        ('{"data": [1, 2]}', {}, "not a series of counts: .*metadata"),
        ('{"metadata": {"gap_seconds": 1}, "data": [1, null]}', {}, "not a series of counts"),
        ('["add"]\n', {}, "is no segment line"),
        ("2021-12-10, 13:07:45, 80\nyesterday\n", {}, ":2: 'yesterday' is no date"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(
    text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        loads(text, **options)


def test_a_byte_order_mark_and_carriage_returns_are_read_over(tmp_path: Path) -> None:
    text = "0,add,a\n60000,remove,a\n"
    exported = tmp_path / "exported.csv"
    exported.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load(exported).counts.tolist() == loads(text).counts.tolist() == [1, 0]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read the trace '.*nowhere.csv': No such file"):
        load(tmp_path / "nowhere.csv")
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(TraceError, match="not UTF-8 text"):
        load(tmp_path / "packed")


def test_the_licence_goes_with_the_trace() -> None:
    assert loads(EVENTS).licence == "not stated"
    assert loads(EVENTS, licence="MIT").cut(from_s=30).licence == "MIT"


def test_numbers_at_any_time_and_node_seconds_between() -> None:
    trace = loads(series([4, 1, 3]))
    assert trace.at(np.array([0, 299, 300, 899.0])).tolist() == [4, 4, 1, 3]
    assert trace.node_s(np.array([0, 150, 600, 900.0])).tolist() == [0, 600, 1500, 2400]
    assert trace.mean_nodes == pytest.approx(8 / 3)
    assert trace.days == 900 / 86400


def test_a_part_counts_from_its_own_start() -> None:
    part = loads(series([4, 1, 3, 2])).cut(from_s=450, to_s=1000)
    assert seen(part) == ([0, 150, 450], [1, 3, 2], [0, 0, 1], 550)
    with pytest.raises(TraceError, match="no part from"):
        part.cut(from_s=600)


def test_ticks_count_who_was_up_before_and_went_within() -> None:
    ticks = loads(EVENTS + "150000,add,node4\n155000,remove,node4\n").ticks(60)
    assert ticks.up.tolist() == [0, 2, 2]
    assert ticks.lost.tolist() == [0, 1, 2]
    assert ticks.from_full(2).lost.tolist() == [1, 2]
    assert ticks.from_full(2).seen_at_least(2) == 0.5


def test_zones_of_one_set_are_cut_to_the_shortest() -> None:
    long, short = loads(series([3, 2, 1, 3])), loads(series([1, 2, 2]))
    assert [trace.end_s for trace in cut_to_shortest([long, short])] == [900, 900]
    assert joined_ticks([long, short], 300).tolist() == [[3, 2, 1], [1, 2, 2]]
    with pytest.raises(TraceError, match="no traces"):
        cut_to_shortest([])


def test_our_own_traces_are_read() -> None:
    eight = load(FIXTURES / "eight-nodes.csv")
    assert (eight.most_nodes, eight.held, round(eight.days, 3)) == (8, True, 2.0)
    assert eight.lost.max() == 8
    zone = load(FIXTURES / "one-zone.json", one_means="available")
    assert (zone.most_nodes, zone.held, round(zone.days, 3)) == (1, False, 2.0)
