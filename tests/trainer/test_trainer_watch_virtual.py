"""Whatever a service answers, a published notice is reported once, in time, and never before.

Under virtual time, from a small service of its own that answers every request at once unless it is
to misbehave. CHAOSSPOT_WATCH_EXAMPLES=10000 draws that many sequences.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from skies import Sky

from chaosspot.trainer.watch.detect import Provider, start
from chaosspot.trainer.watch.values import (
    Advice,
    Answer,
    Blind,
    Failure,
    Maintenance,
    Moment,
    Notice,
    Outcome,
    Pace,
    Report,
    Request,
    Sighted,
    Withdrawn,
)

EXAMPLES = int(os.environ.get("CHAOSSPOT_WATCH_EXAMPLES", "300"))
CLOUDS: tuple[Provider, ...] = ("aws", "gcp", "azure")
WALL_S = 1_700_000_000.0
REQUEST_S = 0.005
PACE = Pace()
LEAD_S = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}

# How a request may fare; what is answered at once is everything else.
STATUSES = (400, 401, 403, 410, 429, 500, 502, 503)
BODIES = (
    b"",
    b"<!DOCTYPE html><html>Sign in</html>",
    b"{",
    b"null",
    b'{"Events": [{}]}',
    b'{"action": "terminate"}',
    b"\xff\xfe",
    b"[" * 2000,
)
FATES: list[Callable[[Service, Request, float], Outcome]] = [
    lambda service, request, at_s: service.broken("ConnectionRefusedError", at_s),
    lambda service, request, at_s: service.broken("ConnectionResetError", at_s + 0.3),
    lambda service, request, at_s: service.broken("an answer longer than 1048576 bytes", at_s),
    lambda service, request, at_s: service.hole(request, at_s),
    lambda service, request, at_s: service.hole(request, at_s),
    lambda service, request, at_s: service.slow(request, at_s, 1.2),
    lambda service, request, at_s: service.slow(request, at_s, 3.0),
    *(lambda service, request, at_s, body=body: service.answer(200, body, at_s) for body in BODIES),
    *(
        lambda service, request, at_s, status=status: service.answer(status, b"<html>", at_s)
        for status in STATUSES
    ),
    lambda service, request, at_s: service.kills_tokens(request, at_s),
]
WELL = 200  # a byte from here on: as it should be


class Service:
    """One node's metadata, a notice published at ``published_s``."""

    def __init__(self, cloud: Provider, published_s: float) -> None:
        self.cloud = cloud
        self.published_s = published_s
        self.token = 0
        at_wall_s = float(int(WALL_S + published_s + LEAD_S[cloud]))
        self.stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_wall_s))
        self.date = formatdate(at_wall_s, usegmt=True)

    def answer(self, status: int, body: bytes, at_s: float, etag: str = "") -> Answer:
        headers = {"date": date(int(WALL_S + at_s)), "etag": etag}
        received = moment(at_s + REQUEST_S)
        return Answer(
            status=status, headers=headers, body=body, sent=moment(at_s), received=received
        )

    def broken(self, why: str, at_s: float) -> Failure:
        return Failure(why=why, sent=moment(at_s), received=moment(at_s + REQUEST_S))

    def hole(self, request: Request, at_s: float) -> Failure:
        end = moment(at_s + request.timeout_s)
        return Failure(why="no answer in time", timed_out=True, sent=moment(at_s), received=end)

    def slow(self, request: Request, at_s: float, delay_s: float) -> Outcome:
        said = self.well(request, at_s)  # as things were when it was asked
        end_s = said.received.now_s + delay_s
        if end_s > at_s + request.timeout_s:
            return self.hole(request, at_s)
        return self.late(said, at_s, end_s)

    def kills_tokens(self, request: Request, at_s: float) -> Outcome:
        self.token += 1
        return self.well(request, at_s)

    def late(self, said: Answer, sent_s: float, at_s: float) -> Answer:
        return Answer(
            status=said.status,
            headers=said.headers,
            body=said.body,
            sent=moment(sent_s),
            received=moment(at_s),
        )

    def well(self, request: Request, at_s: float) -> Answer:
        noticed = at_s >= self.published_s
        path, _, query = request.path.partition("?")
        if path == "/latest/api/token":
            return self.answer(200, b"token-%d" % self.token, at_s)
        if path.startswith("/latest/"):
            if request.headers.get("X-aws-ec2-metadata-token") != f"token-{self.token}":
                return self.answer(401, b"<html>", at_s)
            if path.endswith("instance-action") and noticed:
                body = json.dumps({"action": "terminate", "time": self.stamp})
                return self.answer(200, body.encode(), at_s)
            return self.answer(404, b"<html>", at_s)
        if path.endswith("/preempted"):
            return self._flag(query, noticed, at_s)
        if path.endswith("/maintenance-event"):
            return self.answer(200, b"NONE", at_s)
        if path == "/metadata/instance/compute":
            return self.answer(200, b'{"name": "g_0"}', at_s)
        if path == "/metadata/scheduledevents":
            event = {
                "EventId": "e",
                "EventType": "Preempt",
                "Resources": ["g_0"],
                "EventStatus": "Scheduled",
                "NotBefore": self.date,
            }
            document = {"DocumentIncarnation": 1, "Events": [event] if noticed else []}
            return self.answer(200, json.dumps(document).encode(), at_s)
        return self.answer(404, b"<html>", at_s)

    def _flag(self, query: str, noticed: bool, at_s: float) -> Answer:
        etag = "e1" if noticed else "e0"
        if f"last_etag={etag}&" not in query:
            return self.answer(200, b"TRUE" if noticed else b"FALSE", at_s, etag)
        end_s = at_s + float(query.rpartition("=")[2])
        if not noticed and self.published_s <= end_s:
            said = self.answer(200, b"TRUE", self.published_s, "e1")
            return self.late(said, at_s, self.published_s + REQUEST_S)
        said = self.answer(200, b"TRUE" if noticed else b"FALSE", end_s, etag)
        return self.late(said, at_s, end_s + REQUEST_S)


@cache
def date(wall_s: int) -> str:
    return formatdate(wall_s, usegmt=True)


def moment(at_s: float) -> Moment:
    return Moment(now_s=at_s, wall_s=WALL_S + at_s)


def play(
    cloud: Provider, published_s: float, fates: bytes, jitter: float
) -> tuple[list[tuple[float, Report]], float]:
    """All reports with their times, and when the last request that fared badly was over."""
    service, watch = Service(cloud, published_s), start(cloud, PACE, moment(0.0))
    reported: list[tuple[float, Report]] = []
    now_s = bad_s = 0.0
    number, end_s = 0, published_s + 20.0
    while now_s < end_s:
        request, at_s = watch.ask.request, max(now_s, watch.ask.at_s)
        fate = fates[number] if number < len(fates) else WELL
        if fate < WELL:
            outcome = FATES[fate % len(FATES)](service, request, at_s)
        else:
            outcome = service.well(request, at_s)
        now_s = outcome.received.now_s
        if fate < WELL:
            bad_s = now_s
            end_s = max(end_s, bad_s + 20.0)
        watch, reports = watch.hear(outcome, jitter)
        reported += [(now_s, report) for report in reports]
        number += 1
    return reported, bad_s


@pytest.mark.parametrize("cloud", CLOUDS)
@settings(max_examples=-(-EXAMPLES // len(CLOUDS)), deadline=None)
@given(
    drawn=st.tuples(st.binary(max_size=24), st.integers(0, 400), st.integers(0, 99)),
)
@example(drawn=(b"", 0, 0))
@example(drawn=(bytes([3] * 24), 300, 99))
@example(drawn=(b"\x00\x00\x00cc\x17\x00\x96", 209, 14))  # told at once, and 3 s on its way
def test_a_notice_is_reported_once_in_time_and_never_before(
    cloud: Provider, drawn: tuple[bytes, int, int]
) -> None:
    fates, tenths, hundredths = drawn
    published_s = tenths / 10
    reported, bad_s = play(cloud, published_s, fates, hundredths / 100)
    told = [
        (at_s, found)
        for at_s, found in reported
        if isinstance(found, Notice | Maintenance | Advice | Withdrawn)
    ]
    assert len(told) == 1, told
    at_s, notice = told[0]
    assert isinstance(notice, Notice)
    assert at_s >= published_s, "before it existed"
    # A token to renew, or a name to learn: requests of the same cycle.
    requests = {"aws": 3, "gcp": 2, "azure": 2}[cloud]
    assert at_s <= max(published_s, bad_s) + PACE.interval_s + requests * REQUEST_S + 1e-9
    assert notice.deadline_wall_s <= WALL_S + max(at_s, published_s + LEAD_S[cloud])
    said = [found for _, found in reported if isinstance(found, Blind | Sighted)]
    assert [type(found) for found in said] == [Blind, Sighted] * (len(said) // 2)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_two_hundred_notices_are_seen_within_their_bounds(cloud: Provider) -> None:
    """A poll interval and one request; a hanging one answers at once."""
    trip_s = 0.001
    delays = []
    for number in range(200):
        published_s = 11.0 + number * 0.0317
        sky = Sky(cloud, trip_s=trip_s, jitter=lambda number=number: number % 10 / 10)
        sky.at(published_s, lambda sky=sky: sky.publish(LEAD_S[cloud]))
        sky.run(published_s + 3.0)
        ((at_s, _),) = sky.of(Notice)
        delays.append(at_s - published_s)
    request_s = 2 * trip_s
    longest_s = PACE.interval_s + request_s if cloud != "gcp" else 2 * request_s
    assert all(0.0 < delay_s <= longest_s + 1e-9 for delay_s in delays)
    if cloud != "gcp":
        assert max(delays) > 0.8 * PACE.interval_s, "the notices are spread over the interval"
        assert sorted(delays)[100] <= 1.2
