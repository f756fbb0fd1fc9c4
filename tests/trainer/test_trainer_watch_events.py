"""What is made of the events a provider shows: budgets, clocks, repeats, ends."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from skies import WALL_S, Sky

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AwsSettings, AzureSettings, GcpSettings
from chaosspot.trainer.watch.aws import maintenance_events
from chaosspot.trainer.watch.azure import AzureWatch
from chaosspot.trainer.watch.book import Entry, Event, Sight, see
from chaosspot.trainer.watch.core import ahead_s
from chaosspot.trainer.watch.detect import Provider, start
from chaosspot.trainer.watch.values import (
    Advice,
    Answer,
    Blind,
    Failure,
    Held,
    Maintenance,
    Moment,
    Notice,
    Pace,
    Report,
    Trouble,
    Withdrawn,
)

ACTED = (Notice, Maintenance, Advice, Withdrawn, Held)
INTERVAL_S = Pace().interval_s
CLOUDS = ("aws", "gcp", "azure")


def kinds(sky: Sky) -> list[str]:
    return [type(found).__name__ for _, found in sky.of(*ACTED)]


def document(*events: dict[str, Any]) -> bytes:
    return json.dumps({"DocumentIncarnation": 1, "Events": events}).encode()


OWN = {
    "EventId": "A",
    "EventType": "Preempt",
    "Resources": ["G_0"],
    "EventStatus": "Scheduled",
    "NotBefore": "",
}


def sight(now_s: float = 100.0, *, unseen_s: float = 0.0, ahead: float = 0.0) -> Sight:
    return Sight(
        provider="aws",
        at=Moment(now_s=now_s, wall_s=WALL_S + now_s),
        first_s=now_s - unseen_s,
        ahead_s=ahead,
        margin_s=2.0,
    )


def event(in_s: float | None, *, now_s: float = 100.0, **more: Any) -> Event:
    at_wall_s = None if in_s is None else WALL_S + now_s + in_s
    given = {"key": "k", "kind": "interruption", "action": "stop", "lead_s": 120.0}
    return Event(**{**given, "at_wall_s": at_wall_s, **more})


def shown(*events: Event, at: Sight, entries: tuple[Entry, ...] = ()) -> Any:
    return see(entries, "here", events, at)


@pytest.mark.parametrize(
    ("in_s", "unseen_s", "ahead", "more", "left_s"),
    [
        (100.0, 2.0, 0.0, {}, 98.0),  # what is advertised, less a poll
        (120.0, 2.0, 0.0, {}, 116.0),  # it may have been there since the poll before
        (210.0, 2.0, 0.0, {}, 116.0),  # advertised for later than the provider ever gives
        (30.0, 2.0, 0.0, {}, 28.0),  # advertised for sooner
        (100.0, 50.0, 0.0, {}, 68.0),  # nothing was to be seen for 50 s
        (100.0, 500.0, 0.0, {}, 0.0),
        (100.0, 2.0, 60.0, {}, 38.0),  # the provider's clock is ahead: there is less time
        (100.0, 2.0, -15.0, {}, 113.0),
        (None, 2.0, 0.0, {}, 116.0),  # no time is told
        (None, 2.0, 0.0, {"started": True}, 0.0),
        (1.0, 0.0, 0.0, {}, 0.0),  # never below nothing
        (-0.5, 2.0, 0.0, {}, 0.0),  # the deadline is past
        (-86400.0, 2.0, 0.0, {}, 0.0),
        (100.0, 0.0, 0.0, {"lead_s": 0.0}, 0.0),  # it begins at once, whatever it says
    ],
)
def test_the_budget_is_the_least_that_can_be_counted_on(
    in_s: float | None, unseen_s: float, ahead: float, more: dict[str, Any], left_s: float
) -> None:
    at = sight(unseen_s=unseen_s, ahead=ahead)
    _, (notice,) = shown(event(in_s, **more), at=at)
    assert isinstance(notice, Notice)
    assert notice.deadline_wall_s - at.at.wall_s == pytest.approx(left_s)


def test_what_is_far_ahead_is_held_until_its_lead_and_reported_once() -> None:
    told = event(2000.0)
    entries, reports = shown(told, at=sight())
    assert [type(report) for report in reports] == [Held]
    seen: list[tuple[float, Report]] = []
    for now_s in range(102, 2300, 2):
        entries, reports = shown(told, at=sight(float(now_s)), entries=entries)
        seen += [(now_s, report) for report in reports]
    ((at_s, notice),) = seen
    assert isinstance(notice, Notice)
    assert at_s == 1980, "at the first look within its lead of 120 s"
    assert notice.deadline_wall_s - (WALL_S + at_s) == pytest.approx(118.0)


def test_a_held_event_that_goes_away_was_nothing() -> None:
    entries, _ = shown(event(2000.0), at=sight())
    assert shown(at=sight(), entries=entries) == ((), ())


def test_a_held_event_that_is_brought_forward_is_acted_on() -> None:
    entries, _ = shown(event(2000.0), at=sight())
    _, (notice,) = shown(event(60.0), at=sight(), entries=entries)
    assert isinstance(notice, Notice)


def test_an_event_listed_twice_is_one_and_sources_are_apart() -> None:
    entries, reports = shown(event(60.0), event(60.0), at=sight())
    assert len(reports) == 1
    entries, reports = see(entries, "there", [event(60.0)], sight())
    assert (len(entries), len(reports)) == (2, 1)
    entries, (gone,) = see(entries, "there", [], sight())
    assert isinstance(gone, Withdrawn)
    assert [entry.source for entry in entries] == ["here"]


@pytest.mark.parametrize(
    ("date_s", "sent_s", "received_s", "ahead"),
    [
        (0, 0.2, 0.3, 0.0),  # within the second
        (0, -0.1, 0.0, 0.0),
        (5, 0.0, 9.0, 0.0),  # at some time during a long exchange
        (90, 0.2, 0.3, 90.8),  # ahead, by 89.7 s to 90.8 s: the most leaves the least time
        (-90, 0.2, 0.3, -89.2),
    ],
)
def test_the_date_tells_how_far_the_clocks_are_apart(
    date_s: int, sent_s: float, received_s: float, ahead: float
) -> None:
    answer = Answer(
        status=200,
        headers={"date": formatdate(WALL_S + date_s, usegmt=True)},
        sent=Moment(now_s=sent_s, wall_s=WALL_S + sent_s),
        received=Moment(now_s=received_s, wall_s=WALL_S + received_s),
    )
    assert ahead_s(answer) == pytest.approx(ahead)
    for nonsense in ("", "x", "Thu, 99 Foo 2020 00:00:00 GMT", "\x00", "1" * 5000):
        assert ahead_s(replace(answer, headers={"date": nonsense})) == 0.0
    assert ahead_s(replace(answer, headers={})) == 0.0


@pytest.mark.parametrize("cloud", ["aws", "azure"])
@pytest.mark.parametrize("skew_s", [-300.0, -90.0, 0.0, 90.0, 300.0])
def test_a_wrong_clock_of_the_node_is_corrected(cloud: str, skew_s: float) -> None:
    lead_s = 100.0 if cloud == "aws" else 20.0
    for tenth in range(10):
        sky = Sky(cloud, skew_s=skew_s)
        published_s = 20.0 + tenth / 10
        sky.at(published_s, lambda sky=sky: sky.publish(lead_s))
        sky.run(60.0)
        ((at_s, notice),) = sky.of(*ACTED)
        assert isinstance(notice, Notice)
        true_s = math.floor(published_s + lead_s) - at_s
        assert true_s - INTERVAL_S - 1.1 <= sky.left_s(at_s, notice) <= true_s - INTERVAL_S + 1e-6


@pytest.mark.parametrize("cloud", ["aws", "azure"])
@pytest.mark.parametrize("skew_s", [-90.0, 90.0])
def test_a_wrong_advertised_time_never_leaves_more_than_there_is(cloud: str, skew_s: float) -> None:
    lead_s = 120.0 if cloud == "aws" else 30.0
    sky = Sky(cloud)
    sky.misbehave(m.Skew(skew_s=skew_s))
    sky.at(20.5, lambda: sky.publish(lead_s))
    sky.run(60.0)
    ((at_s, notice),) = sky.of(*ACTED)
    assert isinstance(notice, Notice)
    left_s = sky.left_s(at_s, notice)
    assert left_s <= 20.5 + lead_s - at_s - INTERVAL_S + 0.001
    assert left_s >= max(0.0, lead_s + min(0.0, skew_s) - 3 * INTERVAL_S - 1.0)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_repeated_as_if_new_it_is_still_one(cloud: str) -> None:
    sky = Sky(cloud)
    sky.misbehave(m.Duplicate(every_s=0.7))
    sky.at(20.0, lambda: sky.publish(120.0))
    sky.run(100.0)
    assert kinds(sky) == ["Notice"]
    if cloud == "gcp":  # a new version, and the same value
        assert len(sky.requests) < 120


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_withdrawal_is_reported_once_and_a_new_notice_is_new(cloud: str) -> None:
    sky = Sky(cloud)
    sky.at(20.0, lambda: sky.publish(120.0))
    sky.at(40.0, sky.withdraw)
    sky.at(60.0, lambda: sky.publish(120.0))
    sky.run(100.0)
    (_, first), (gone_s, gone), (_, second) = sky.of(*ACTED)
    assert isinstance(gone, Withdrawn)
    assert gone.what == first
    assert 0.0 <= gone_s - 40.0 <= INTERVAL_S + 0.1
    assert isinstance(second, Notice)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_outage_is_no_withdrawal(cloud: str) -> None:
    sky = Sky(cloud)
    sky.at(20.0, lambda: sky.publish(120.0))
    sky.at(30.0, lambda: sky.misbehave(m.Status(status=503, lasts_s=40.0)))
    sky.run(100.0)
    assert kinds(sky) == ["Notice"]


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 429, 500, 503])
def test_a_status_that_says_nothing_is_neither_an_end_nor_an_answer(
    cloud: str, status: Any
) -> None:
    if (cloud, status) == ("aws", 404):
        status = 410  # there, 404 is the answer
    sky = Sky(cloud)
    sky.at(20.0, lambda: sky.publish(120.0))
    sky.at(30.0, lambda: sky.misbehave(m.Status(status=status)))
    sky.run(90.0)
    assert kinds(sky) == ["Notice"]
    ((at_s, _),) = sky.of(Blind)
    assert 28.0 <= at_s - 30.0 <= 45.0


@pytest.mark.parametrize(
    ("cloud", "answers"),
    [
        ("aws", [(200, b"token"), (403, b'{"action": "stop", "time": "2023-11-14T22:13:40Z"}')]),
        ("gcp", [(404, b"TRUE")]),
        ("azure", [(503, document(OWN)), (200, b'{"name": "g_0"}')]),
    ],
)
def test_only_an_answer_that_is_a_200_is_read(
    cloud: Provider, answers: list[tuple[int, bytes]]
) -> None:
    watch = start(cloud, Pace(), Moment(now_s=0.0, wall_s=WALL_S))
    reported: list[Report] = []
    for status, body in answers:
        at = Moment(now_s=watch.ask.at_s, wall_s=WALL_S + watch.ask.at_s)
        answer = Answer(status=status, body=body, sent=at, received=at)
        watch, reports = watch.hear(answer, 0.0)
        reported += reports
    assert {type(found) for found in reported} == {Trouble}


# --- AWS ------------------------------------------------------------------------------------


def test_hibernation_leaves_no_time() -> None:
    sky = Sky("aws")
    sky.at(20.0, lambda: sky.publish(120.0, "hibernate"))
    sky.run(30.0)
    ((at_s, notice),) = sky.of(*ACTED)
    assert isinstance(notice, Notice)
    assert sky.left_s(at_s, notice) == 0.0


def test_a_deadline_that_is_past_at_the_first_look_leaves_no_time() -> None:
    sky = Sky("aws")
    sky.publish(120.0)
    sky.misbehave(m.Closed(lasts_s=200.0))
    sky.run(240.0)
    ((at_s, notice),) = sky.of(*ACTED)
    assert isinstance(notice, Notice)
    assert sky.left_s(at_s, notice) == 0.0


def test_other_keys_do_not_delay_the_notice() -> None:
    for tenths in range(20):
        sky = Sky("aws")
        if tenths % 2:  # little room is left for them
            sky.misbehave(m.Latency(delay_s=1.2, paths="*/instance-action"))
        for paths in ("*/events/*", "*/autoscaling/*"):
            sky.misbehave(m.BlackHole(paths=paths))
        published_s = 20.0 + tenths / 10
        sky.at(published_s, lambda sky=sky: sky.publish(120.0))
        sky.run(30.0)
        ((at_s, _),) = sky.of(*ACTED)
        assert at_s - published_s <= INTERVAL_S + 0.01
        assert sky.of(Blind, Trouble) == []


def test_errors_do_not_keep_another_key_from_its_turn() -> None:
    for phase in range(40):
        sky = Sky("aws", settings=AwsSettings(tokens_required=False))
        sky.misbehave(m.Status(status=503, rate=0.3, seed=1))
        began_s = 1.0 + phase / 2
        sky.at(began_s, lambda sky=sky: sky.publish(0.0, "rebalance"))
        sky.run(began_s + 30.0)
        ((at_s, _),) = sky.of(*ACTED)
        assert at_s - began_s <= 10 * INTERVAL_S


def test_maintenance_is_read_as_documented() -> None:
    told = {
        "NotBefore": "21 Jan 2019 09:00:43 GMT",
        "Code": "system-reboot",
        "EventId": "instance-event-0d59937288b749b32",
        "State": "active",
    }
    (found,) = maintenance_events(json.dumps([told]).encode())  # NotAfter may be missing
    assert (found.at_wall_s, found.takes_node, found.kind) == (1548061243.0, True, "maintenance")
    stays = {**told, "Code": "system-maintenance"}
    (found,) = maintenance_events(json.dumps([stays]).encode())
    assert not found.takes_node
    for state in ("completed", "canceled"):
        assert maintenance_events(json.dumps([{**told, "State": state}]).encode()) == []
    for wrong in ({**told, "NotBefore": "soon"}, {"State": "active"}, 3, None):
        with pytest.raises(ValueError, match="event without its"):
            maintenance_events(json.dumps([wrong]).encode())
    with pytest.raises(ValueError, match="not a list"):
        maintenance_events(b"{}")


def test_a_directory_that_is_redirected_or_absent_changes_nothing() -> None:
    settings = AwsSettings(idle_maintenance="absent", idle_termination_time="2015-01-05")
    sky = Sky("aws", settings=settings)
    sky.run(60.0)
    assert sky.reported == []


# --- Google Cloud ---------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["migrate", "terminate"])
def test_host_maintenance_takes_the_node_or_moves_it(action: str) -> None:
    sky = Sky("gcp", settings=GcpSettings(arming=True))
    sky.at(20.0, lambda: sky.publish(60.0, action))
    sky.run(60.0)
    ((at_s, found),) = sky.of(*ACTED)
    assert isinstance(found, Maintenance)
    assert found.action == action
    if action == "migrate":
        assert found.deadline_wall_s is None
    else:
        assert 30.0 <= sky.left_s(at_s, found) <= 60.0


def test_upcoming_maintenance_is_held_until_its_time() -> None:
    sky = Sky("gcp")
    sky.at(20.0, lambda: sky.publish(1500.0, "upcoming-maintenance"))
    sky.run(1000.0)
    assert kinds(sky) == ["Held", "Maintenance"]
    at_s, found = sky.of(Maintenance)[0]
    assert isinstance(found, Maintenance)
    assert 850.0 <= sky.left_s(at_s, found) <= 900.0


def test_a_server_that_cannot_hang_is_polled() -> None:
    sky = Sky("gcp")
    answer = sky._answer
    sky._answer = lambda asked, end: answer(  # type: ignore[method-assign]
        replace(asked, path=asked.path.partition("?wait")[0]), end
    )
    sky.at(30.3, lambda: sky.publish(30.0))
    sky.run(60.0)
    ((at_s, _),) = sky.of(*ACTED)
    assert at_s - 30.3 <= INTERVAL_S + 0.01
    assert len(sky.requests) <= 70


def test_where_hanging_requests_get_lost_the_flag_is_polled() -> None:
    sky = Sky("gcp")
    answer = sky._answer
    sky._answer = lambda asked, end: (  # type: ignore[method-assign]
        "" if "wait_for_change" in asked.path else answer(asked, end)
    )
    for published_s in (20.3, 30.7, 38.0):  # the first one was lost for 12 s
        sky.at(published_s, lambda: sky.publish(30.0))
        sky.at(published_s + 5.0, sky.withdraw)
    sky.run(45.0)
    seen_s = [at_s for at_s, _ in sky.of(Notice)]
    for published_s, at_s in zip((20.3, 30.7, 38.0), seen_s, strict=True):
        assert 0.0 <= at_s - published_s <= INTERVAL_S + 0.01
    assert sky.of(Blind) == []


# --- Azure ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "kind", "takes"),
    [
        ("preempt", Notice, True),
        ("terminate", Notice, True),
        ("reboot", Maintenance, True),
        ("redeploy", Maintenance, True),
        ("freeze", Maintenance, False),
    ],
)
def test_azures_events(action: str, kind: type, takes: bool) -> None:
    sky = Sky("azure")
    sky.at(20.0, lambda: sky.publish(300.0, action))
    sky.run(30.0)
    ((_, found),) = sky.of(*ACTED)
    assert isinstance(found, kind)
    assert isinstance(found, Notice | Maintenance)
    assert (found.action, found.deadline_wall_s is not None) == (action, takes)


def azure_hears(*answers: bytes | None) -> list[Report]:
    """What is reported of these answers, whatever is asked; None is a failure."""
    watch, reported = AzureWatch.start(Pace(), Moment(now_s=0.0, wall_s=WALL_S)), []
    for body in answers:
        moment = Moment(now_s=watch.ask.at_s, wall_s=WALL_S + watch.ask.at_s)
        if body is None:
            outcome: Answer | Failure = Failure(why="reset", sent=moment, received=moment)
        else:
            outcome = Answer(status=200, body=body, sent=moment, received=moment)
        watch, reports = watch.hear(outcome, 0.0)
        reported += reports
    return reported


def test_no_event_is_acted_on_while_this_nodes_name_is_not_known() -> None:
    name = b'{"name": "g_0"}'
    notice, other = document(OWN), document({**OWN, "Resources": ["g_1"]})
    assert [type(found).__name__ for found in azure_hears(notice, name)] == ["Notice"]
    reported = azure_hears(notice, None, notice, b"{}", notice, name)
    assert [type(found).__name__ for found in reported] == ["Trouble", "Trouble", "Notice"]
    assert azure_hears(other, name, other) == []
    over = azure_hears(notice, None, document(), name)
    assert [type(found).__name__ for found in over] == ["Trouble"], "of what is over by now"


@pytest.mark.parametrize(
    "more",
    [
        {"NotBefore": "2023-11-14T22:13:40Z"},  # a known mock's form
        {"NotBefore": "Tue, 14 Nov 2023 22:13:40 GMT"},
        {"NotBefore": "nonsense"},
        {"NotBefore": None},
        {"EventStatus": "Started"},
        {"DurationInSeconds": 0},
    ],
)
def test_a_preemption_counts_whatever_its_time_looks_like(more: dict[str, Any]) -> None:
    (notice,) = azure_hears(document({**OWN, **more}), b'{"name": "g_0"}')
    assert isinstance(notice, Notice)
    assert notice.deadline_wall_s <= WALL_S + 30.0


def test_a_reboot_without_impact_and_an_unknown_type_do_not_take_the_node() -> None:
    for more in ({"EventType": "Reboot", "DurationInSeconds": 0}, {"EventType": "Polish"}):
        (found,) = azure_hears(document({**OWN, **more}), b'{"name": "g_0"}')
        assert isinstance(found, Maintenance)
        assert found.deadline_wall_s is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"Events": null}',
        b'{"Events": 3}',
        b'{"Events": [3]}',
        b'{"Events": [{"EventId": "a", "EventType": "Preempt"}]}',
        b'{"Events": [{"EventId": "a", "EventType": "Preempt", "Resources": [7]}]}',
        b'{"Events": [{"EventId": 1, "EventType": "Preempt", "Resources": []}]}',
        b"[" * 60_000,
        b"<html>",
        b"\xff",
    ],
)
def test_a_document_that_is_none_says_nothing(body: bytes) -> None:
    reported = azure_hears(document(OWN), b'{"name": "g_0"}', body, document(OWN))
    assert [type(found).__name__ for found in reported] == ["Notice", "Trouble"]


def test_the_first_call_may_take_two_minutes() -> None:
    sky = Sky("azure", settings=AzureSettings(first_call_delay_s=120.0))
    sky.at(10.0, lambda: sky.publish(300.0, "terminate"))
    sky.run(140.0)
    assert kinds(sky) == ["Notice"]
