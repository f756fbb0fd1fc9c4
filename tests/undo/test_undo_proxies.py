"""Proxies in a server that is not the run's: these are removed, no others, and it is verified."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from chaosspot.services.proxy.hosted import hosted
from chaosspot.undo import Proxies, Undo, toxiproxy

LEASE = "20261130T195252-1234-0123abcd"
OWN = f"chaosspot-{LEASE}."


def ask(url: str, method: str, path: str, given: object = None) -> Any:
    from urllib.request import Request, urlopen

    data = None if given is None else json.dumps(given).encode()
    with urlopen(Request(url + path, data, method=method), timeout=5) as answer:
        return json.loads(answer.read() or b"null")


def create(url: str, *names: str) -> None:
    for name in names:
        ask(url, "POST", "/proxies", {"name": name, "upstream": "127.0.0.1:9"})


class Server:
    """Answers as it is told: by path, with a status and a body, or not at all (None)."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes] | None] = {}
        self.asked: list[str] = []


@contextmanager
def serving(server: Server) -> Iterator[str]:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            server.asked.append(f"{self.command} {self.path}")
            told = server.answers.get(self.path, (200, b"{}"))
            if told is None:
                over.wait(20)
                return
            self.send_response(told[0])
            self.send_header("Content-Length", str(len(told[1])))
            self.end_headers()
            self.wfile.write(told[1])

        do_GET = do_DELETE = _answer

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            over.set()
            http.shutdown()
            thread.join()


def test_the_runs_own_are_removed_once() -> None:
    others = ("mine", f"chaosspot-{LEASE}", f"chaosspot-{LEASE}e.node-0.store", "node-0.store")
    with hosted() as url:
        create(url, f"{OWN}node-1.store", f"{OWN}node-0.store", *others)
        undo = Proxies.of(LEASE, url)
        assert undo.heal() == (f"removed 2 proxies at {url}: {OWN}node-0.store, {OWN}node-1.store")
        assert set(ask(url, "GET", "/proxies")) == set(others)
        assert undo.heal() is None
        assert set(ask(url, "GET", "/proxies")) == set(others)


def test_a_server_below_a_path_is_asked_there() -> None:
    server = Server()
    with serving(server) as url:
        assert Proxies.of(LEASE, f"{url}/toxi/").heal() is None
    assert set(server.asked) == {"GET /toxi/proxies"}


def test_one_that_comes_late_is_removed_too() -> None:
    """Asked for by a harness that died before it was answered."""
    server = Server()
    listed = iter([{}, {f"{OWN}n.store": {}}, {}, {}])

    class Late(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            return (200, json.dumps(next(listed)).encode()) if path == "/proxies" else default

    server.answers = Late()
    with serving(server) as url:
        assert Proxies.of(LEASE, url).heal() == f"removed 1 proxy at {url}: {OWN}n.store"
    assert f"DELETE /proxies/{OWN}n.store" in server.asked


def test_a_server_that_is_gone_has_none() -> None:
    with hosted() as url:
        pass
    assert Proxies.of(LEASE, url).heal() is None


@pytest.mark.parametrize(
    "answer", [(404, b"not found"), (200, b"<html>"), (200, b"[1]"), (200, b"\xff")]
)
def test_another_server_in_its_place_has_none(answer: tuple[int, bytes]) -> None:
    server = Server()
    server.answers["/proxies"] = answer
    with serving(server) as url:
        assert Proxies.of(LEASE, url).heal() is None
    assert {line.split()[0] for line in server.asked} == {"GET"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [((503, b"<html>"), "503"), (None, r"no answer within 0\.2 s")],
    ids=["fails", "hangs"],
)
def test_a_server_that_does_not_tell_is_an_error(
    answer: tuple[int, bytes] | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toxiproxy, "_ANSWER_S", 0.2)
    server = Server()
    server.answers["/proxies"] = answer
    with serving(server) as url, pytest.raises(OSError, match=words):
        Proxies.of(LEASE, url).heal()


def test_what_cannot_be_removed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy, "_WITHIN_S", 0.2)
    server = Server()
    server.answers["/proxies"] = (200, json.dumps({f"{OWN}n.store": {}}).encode())
    with serving(server) as url, pytest.raises(OSError, match=r"still there after 0\.2 s"):
        Proxies.of(LEASE, url).heal()


@pytest.mark.parametrize(
    "prefix", ["", ".", "chaosspot-", "mine.", f"chaosspot-{LEASE}", f"x{OWN}", f"{OWN}n"]
)
def test_a_damaged_record_removes_nothing(prefix: str) -> None:
    with hosted() as url:
        create(url, "mine", f"{OWN}n.store")
        with pytest.raises(OSError, match="refuses to remove proxies"):
            Proxies(url=url, prefix=prefix).heal()
        assert len(ask(url, "GET", "/proxies")) == 2


def test_the_environments_proxies_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosted() as url:
        create(url, f"{OWN}n.store")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert Proxies.of(LEASE, url).heal()


def test_the_record_survives_a_round_trip() -> None:
    undo = Proxies.of(LEASE, "http://127.0.0.1:8474")
    assert msgspec.json.decode(msgspec.json.encode(undo), type=Undo) == undo
