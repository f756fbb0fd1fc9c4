"""The watcher sees a notice whatever the metadata service does before it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from chaosspot.trainer.config import InputError
from chaosspot.trainer.notice import Notice, NoticeBoard
from chaosspot.trainer.watcher import AwsWatcher, parse_instance_action

if TYPE_CHECKING:
    from conftest import Imds, ImdsHandler

NOTICE = b'{"action": "terminate", "time": "2030-01-02T03:04:05Z"}'
EXPECTED = Notice(provider="aws", action="terminate", deadline_wall_s=1893553445.0)


@contextmanager
def watching(imds: Imds) -> Iterator[Callable[[], float | None]]:
    board = NoticeBoard()
    with AwsWatcher(imds.url, board, interval_s=0.02, timeout_s=0.3):
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
        imds.notice = NOTICE
        until(lambda: time_left_s() is not None)
        left = time_left_s()
        assert left is not None
        assert left == pytest.approx(EXPECTED.deadline_wall_s - time.time(), abs=1)
    assert imds.requests.count("PUT") == 1, "a token is kept while it works"


def test_a_refused_token_is_minted_anew(imds: Imds) -> None:
    with watching(imds) as time_left_s:
        until(lambda: imds.requests.count("GET") >= 2)
        imds.tokens.clear()
        imds.notice = NOTICE
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
    imds.notice = NOTICE
    with watching(imds) as time_left_s:
        until(lambda: time_left_s() is not None)
    assert imds.next == []


def test_a_service_that_is_not_there_yet() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        board = NoticeBoard()
        watcher = AwsWatcher(url, board, interval_s=0.02, timeout_s=0.3)
        with pytest.raises(OSError, match="refused"):
            watcher.poll()
        with watcher:
            pass  # and it ends


def test_proxies_are_not_asked(imds: Imds, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    imds.notice = NOTICE
    assert AwsWatcher(imds.url, NoticeBoard()).poll() == EXPECTED


@pytest.mark.parametrize("url", ["127.0.0.1:80", "https://x", "http://", "http://h:notaport"])
def test_a_wrong_endpoint_is_shown(url: str) -> None:
    with pytest.raises(InputError, match="metadata endpoint"):
        AwsWatcher(url, NoticeBoard())


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_parse(action: str) -> None:
    body = json.dumps({"action": action, "time": "2030-01-02T03:04:05Z"}).encode()
    assert parse_instance_action(body).action == action
    assert parse_instance_action(body).deadline_wall_s == EXPECTED.deadline_wall_s


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"null", b'{"action": "stop"}', b"\xff"])
def test_parse_refuses_anything_else(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json, unicode and time errors are all one
        parse_instance_action(body)


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
