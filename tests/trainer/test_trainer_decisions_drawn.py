"""What the trainer decides, for any numbers: budgets before a deadline, and events it is shown."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from chaosspot.trainer.plan import Rates, drain_plan, keep_waiting
from chaosspot.trainer.watch.book import Entry, Event, Sight, see
from chaosspot.trainer.watch.detect import named
from chaosspot.trainer.watch.values import Held, Moment, Notice, Withdrawn

seconds = st.floats(-10.0, 1e5)
sizes = st.integers(0, 10**13)
rates = st.builds(
    Rates,
    flash=st.none() | st.floats(1.0, 1e11),
    store=st.none() | st.floats(1.0, 1e11),
)
leaves = {
    "time_left_s": seconds,
    "staying": st.integers(0, 64),
    "leaving": st.integers(0, 64),
    "total_bytes": sizes,
    "has_store": st.booleans(),
    "rates": rates,
}


@given(st.fixed_dictionaries(leaves))
def test_a_drain_ends_before_the_deadline_and_saves_what_would_be_lost(given: dict) -> None:
    plan = drain_plan(**given)
    assert 0 <= plan.flush_timeout_s <= max(0.0, given["time_left_s"] - 1.0)
    assert plan.upload <= (plan.parts is not None and given["has_store"])
    assert plan.margin_s == plan.flush_timeout_s - plan.predicted_s
    if plan.parts is None:
        assert plan.flush_timeout_s == 0 or (given["staying"] and plan.margin_s < 0)
    elif given["staying"]:
        assert plan.margin_s >= 0
        assert plan.parts == 1  # the whole state: those who stay hold no part of it alone
    else:
        assert plan.parts == max(1, given["leaving"])


@given(st.fixed_dictionaries(leaves), st.floats(0.0, 1e4))
def test_more_time_never_saves_less(given: dict, more_s: float) -> None:
    sooner = drain_plan(**given)
    later = drain_plan(**given | {"time_left_s": given["time_left_s"] + more_s})
    assert sooner.parts is None or later.parts == sooner.parts
    assert later.flush_timeout_s >= sooner.flush_timeout_s


@given(st.fixed_dictionaries(leaves), st.integers(0, 64))
def test_who_leaves_with_others_is_never_slower_than_alone(given: dict, more: int) -> None:
    alone = drain_plan(**given | {"staying": 0, "leaving": 1})
    together = drain_plan(**given | {"staying": 0, "leaving": 1 + more})
    assert together.predicted_s <= alone.predicted_s


@given(rates, sizes, sizes, st.booleans())
def test_more_bytes_take_no_less_time(known: Rates, one: int, other: int, upload: bool) -> None:
    few, many = sorted((one, other))
    assert known.seconds(few, upload=upload) <= known.seconds(many, upload=upload)
    assert known.seconds(many, upload=False) <= known.seconds(many, upload=True)


@given(seconds, seconds)
def test_who_waits_with_less_time_waits_with_more(one_s: float, other_s: float) -> None:
    less_s, more_s = sorted((one_s, other_s))
    assert keep_waiting(less_s) <= keep_waiting(more_s) <= keep_waiting(None)


KEYS = ("a", "b", "c")
LEAD_S = 120.0
events = st.builds(
    Event,
    key=st.sampled_from(KEYS),
    kind=st.sampled_from(["interruption", "maintenance"]),
    action=st.just("stop"),
    lead_s=st.just(LEAD_S),
    at_wall_s=st.none() | st.floats(0.0, 5000.0),
    started=st.booleans(),
)
shows = st.lists(st.tuples(st.sampled_from(["one", "other"]), st.lists(events, max_size=4)))


@given(shows)
def test_an_event_is_told_once_while_it_is_shown_and_withdrawn_only_if_it_was_told(
    shown: list[tuple[str, list[Event]]],
) -> None:
    entries: tuple[Entry, ...] = ()
    told: dict[str, set[str]] = {"one": set(), "other": set()}
    for number, (source, listed) in enumerate(shown):
        now_s = 10.0 * number
        at = Moment(now_s=now_s, wall_s=1000.0 + now_s)
        sight = Sight(provider="aws", at=at, first_s=now_s, ahead_s=0.0, margin_s=2.0)
        before = {(e.source, e.key): e for e in entries}
        entries, reports = see(entries, source, listed, sight)
        keys = [(e.source, e.key) for e in entries]
        assert len(set(keys)) == len(keys)
        assert {key for s, key in keys if s == source} == {event.key for event in listed}
        assert [e for e in entries if e.source != source] == [
            e for e in before.values() if e.source != source
        ]
        newly = {e.key for e in entries if e.source == source and e.told} - told[source]
        over = told[source] - {e.key for e in entries if e.source == source}
        acted = [report for report in reports if not isinstance(report, Held | Withdrawn)]
        assert len(acted) == len(newly)
        assert sum(isinstance(report, Withdrawn) for report in reports) == len(over)
        told[source] = (told[source] | newly) - over
        for report in acted:
            if isinstance(report, Notice):
                assert at.wall_s <= report.deadline_wall_s <= at.wall_s + LEAD_S


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.floats(0.0, 1e6)), max_size=6))
def test_no_report_tells_of_more_time_than_is_advertised(listed: list[tuple[str, float]]) -> None:
    at = Moment(now_s=0.0, wall_s=1000.0)
    sight = Sight(provider="gcp", at=at, first_s=0.0, ahead_s=0.0, margin_s=2.0)
    shown = [
        Event(key=k, kind="interruption", action="x", lead_s=math.inf, at_wall_s=1000.0 + in_s)
        for k, in_s in listed
    ]
    _, reports = see((), "s", shown, sight)
    for report in reports:
        assert isinstance(report, Notice)
        assert report.deadline_wall_s <= max(at.wall_s, (report.advertised_wall_s or 0.0))


@given(st.dictionaries(st.sampled_from(["GCE_METADATA_HOST", "PATH", "HOME"]), st.text(max_size=9)))
def test_only_what_is_named_and_not_empty_is_asked(environ: dict[str, str]) -> None:
    host = environ.get("GCE_METADATA_HOST", "")
    assert set(named(environ)) == ({"gcp"} if host else set())
