"""The watcher sees a notice whatever the metadata service does before it."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from chaosspot.trainer.config import InputError
from chaosspot.trainer.notice import Notice, NoticeBoard, sigterm_is_a_notice
from chaosspot.trainer.watch.aws import instance_action
from chaosspot.trainer.watch.values import (
    Advice,
    Blind,
    Held,
    Maintenance,
    Pace,
    Sighted,
    Trouble,
    Withdrawn,
)
from chaosspot.trainer.watcher import Watcher

if TYPE_CHECKING:
    from conftest import Imds, ImdsHandler

LEAD_S = 100.0
PACE = Pace(interval_s=0.02, timeout_s=0.3)


def notice() -> bytes:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + LEAD_S))
    return json.dumps({"action": "terminate", "time": stamp}).encode()


@contextmanager
def watching(imds: Imds) -> Iterator[Callable[[], float | None]]:
    board = NoticeBoard()
    with Watcher(imds.url, board, pace=PACE):
        yield board.time_left_s


def until(test: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not test():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)


def test_no_notice_then_a_notice(imds: Imds) -> None:
    with watching(imds) as time_left_s:
        until(lambda: imds.requests.count("GET") >= 3)
        assert time_left_s() is None
        imds.notice = notice()
        until(lambda: time_left_s() is not None)
        left = time_left_s()
        assert left is not None
        assert LEAD_S - 2 < left <= LEAD_S
    assert imds.requests.count("PUT") == 1, "a token is kept while it works"


def test_a_refused_token_is_minted_anew(imds: Imds) -> None:
    with watching(imds) as time_left_s:
        until(lambda: imds.requests.count("GET") >= 2)
        imds.tokens.clear()
        imds.notice = notice()
        until(lambda: time_left_s() is not None)
    assert imds.requests.count("PUT") == 2


def hang(handler: ImdsHandler) -> None:
    handler.server.stop.wait(30)


def trickle(handler: ImdsHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    try:
        while not handler.server.stop.wait(0.05):
            handler.wfile.write(b"x")
    except OSError:
        return  # the client hung up, as it should


def slow_headers(handler: ImdsHandler) -> None:
    try:
        while not handler.server.stop.wait(0.05):
            handler.wfile.write(b"H")
    except OSError:
        return


MISBEHAVIOURS = {
    "503": lambda handler: handler.answer(503, b"slow down"),
    "401": lambda handler: handler.answer(401),
    "403": lambda handler: handler.answer(403),
    "200, not JSON": lambda handler: handler.answer(200, b"<html>it works</html>\xff"),
    "200, no notice": lambda handler: handler.answer(200, b'{"action": null}'),
    "200, a bad time": lambda handler: handler.answer(200, b'{"action": "stop", "time": "x"}'),
    "200, nested too deep": lambda handler: handler.answer(200, b"[" * 60_000),
    "200, empty": lambda handler: handler.answer(200),
    "reset": lambda handler: handler.connection.close(),
    "hang": hang,
    "trickle": trickle,
    "slow headers": slow_headers,
    "not HTTP": lambda handler: handler.wfile.write(b"SSH-2.0\r\n\r\n"),
}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_notice_is_seen_after_any_misbehaviour(imds: Imds, name: str) -> None:
    imds.next = [MISBEHAVIOURS[name]] * 4  # the token and the value, twice
    imds.notice = notice()
    with watching(imds) as time_left_s:
        until(lambda: time_left_s() is not None)
    assert imds.next == []


def test_a_service_that_is_not_there_yet(imds: Imds, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        began = time.monotonic()
        with Watcher(url, NoticeBoard(), pace=PACE):
            until(lambda: "ConnectionRefusedError" in caplog.text)
        assert time.monotonic() - began < 5.0  # and it ends


def test_a_watcher_ends_at_once_while_it_waits_for_an_answer(imds: Imds) -> None:
    imds.next = [hang]
    board = NoticeBoard()
    with Watcher(imds.url, board, pace=Pace(timeout_s=60.0)):
        until(lambda: imds.requests)
        began = time.monotonic()
    assert time.monotonic() - began < 0.9
    assert "metadata" not in {thread.name for thread in threading.enumerate()}


def test_a_fault_of_its_own_does_not_end_the_watch(
    imds: Imds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    board = NoticeBoard()
    post, broken = board.post, [True, True]

    def breaks(report: object) -> None:
        if broken:
            broken.pop()
            raise RuntimeError("a planted fault")
        post(report)  # type: ignore[arg-type]

    monkeypatch.setattr(board, "post", breaks)
    imds.notice = notice()
    with Watcher(imds.url, board, pace=PACE):
        until(lambda: board.time_left_s() is not None)
    assert caplog.text.count("RuntimeError: a planted fault") == 2


def test_blindness_is_said_once_loudly_and_its_end_too(
    imds: Imds, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[str] = []
    monkeypatch.setattr(
        "chaosspot.trainer.notice.probe.emit", lambda name, **fields: emitted.append(name)
    )
    board = NoticeBoard()
    imds.next = [MISBEHAVIOURS["503"]] * 60
    with Watcher(imds.url, board, pace=Pace(interval_s=0.02, blind_after_s=0.2)):
        until(lambda: "answers again" in caplog.text)
    board.report()
    assert emitted == ["blind", "sighted"]
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "a notice would not be seen" in errors[0]
    assert len(caplog.records) <= 4, "one line for the whole outage, not one a poll"


def test_proxies_are_not_asked(imds: Imds, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    imds.notice = notice()
    with watching(imds) as time_left_s:
        until(lambda: time_left_s() is not None)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "https://x", "http://", "http://h:notaport"])
def test_a_wrong_endpoint_is_shown(url: str) -> None:
    with pytest.raises(InputError, match="metadata endpoint"):
        Watcher(url, NoticeBoard())


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_parse(action: str) -> None:
    body = json.dumps({"action": action, "time": "2030-01-02T03:04:05Z"}).encode()
    event = instance_action(body)
    assert (event.kind, event.action, event.at_wall_s) == ("interruption", action, 1893553445.0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"null", b'{"action": "stop"}', b"\xff"])
def test_parse_refuses_anything_else(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json, unicode and time errors are all one
        instance_action(body)


def test_the_earliest_deadline_counts_and_is_reported_once(monkeypatch) -> None:
    emitted: list[dict[str, object]] = []
    monkeypatch.setattr(
        "chaosspot.trainer.notice.probe.emit", lambda name, **fields: emitted.append(fields)
    )
    board = NoticeBoard()
    assert board.time_left_s() is None
    now = time.time()
    early = Notice(provider="aws", action="stop", deadline_wall_s=now + 50)
    board.post(Notice(provider="sigterm", action="terminate", deadline_wall_s=now + 90))
    board.post(early)
    board.post(early)
    left = board.time_left_s()
    assert left is not None
    assert 49 < left <= 50
    board.report()
    board.report()
    assert [event["provider"] for event in emitted] == ["sigterm", "aws"]


def test_a_notice_that_is_withdrawn_leaves_no_deadline() -> None:
    board = NoticeBoard()
    notice = Notice(provider="azure", action="preempt", deadline_wall_s=time.time() + 30)
    board.post(notice)
    assert board.time_left_s() is not None
    board.post(Withdrawn(what=notice))
    assert board.time_left_s() is None
    board.post(notice)
    assert board.time_left_s() is not None, "announced again, it stands again"


def test_maintenance_counts_if_the_node_does_not_survive_it_and_advice_never() -> None:
    board = NoticeBoard()
    board.post(Advice(provider="aws", action="rebalance"))
    board.post(Maintenance(provider="azure", action="freeze", deadline_wall_s=None))
    assert board.time_left_s() is None
    at = time.time() + 60
    board.post(Maintenance(provider="azure", action="reboot", deadline_wall_s=at))
    left = board.time_left_s()
    assert left is not None
    assert 59 < left <= 60


def test_every_report_is_an_event_but_what_is_only_logged(monkeypatch) -> None:
    emitted: list[str] = []
    monkeypatch.setattr(
        "chaosspot.trainer.notice.probe.emit", lambda name, **fields: emitted.append(name)
    )
    board = NoticeBoard()
    notice = Notice(provider="gcp", action="preempt", deadline_wall_s=1.0)
    for report in (
        notice,
        Advice(provider="aws", action="rebalance"),
        Maintenance(provider="gcp", action="migrate", deadline_wall_s=None),
        Held(provider="aws", action="system-reboot", advertised_wall_s=1.0),
        Trouble(provider="aws", why="x"),
        Blind(provider="aws", why="x", for_s=30.0),
        Sighted(provider="aws", for_s=31.0),
        Withdrawn(what=notice),
    ):
        board.post(report)
    board.report()
    assert emitted == ["notice", "advice", "maintenance", "blind", "sighted", "withdrawn"]


def test_a_sigterm_comes_before_a_later_deadline_and_a_second_gives_no_more_time() -> None:
    board = NoticeBoard()
    board.post(Notice(provider="aws", action="terminate", deadline_wall_s=time.time() + 100))
    with sigterm_is_a_notice(board, grace_s=10.0):
        signal.raise_signal(signal.SIGTERM)
        first = board.time_left_s()
        signal.raise_signal(signal.SIGTERM)
        second = board.time_left_s()
    assert first is not None
    assert second is not None
    assert second <= first <= 10.0
