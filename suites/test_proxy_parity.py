"""The embedded proxy and the real toxiproxy-server, held to the same cases.

The real one is the program on PATH, or what answers at CHAOSSPOT_TOXIPROXY_URL (whose proxies named
``parity`` are removed). Without it the embedded half alone is run, and the summary says so. Where
the two differ on purpose, see the table in README.md beside this file.

    pytest suites/test_proxy_parity.py
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import start_blocking_portal

from chaosspot.services.proxy import real
from chaosspot.services.proxy.hosted import hosted

pytestmark = [pytest.mark.parity, pytest.mark.timeout(60)]

NO_REAL = (
    f"no {real.PROGRAM} on PATH and {real.URL_VARIABLE} is not set: "
    "only the embedded half of the parity suite was run"
)
SLACK_S = 2.0  # how late a busy machine may be
P, T = "/proxies", "/proxies/parity/toxics"
BAD = "bad request body: "


class Server:
    """One of the two, with a proxy named parity."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._where = (str(address.hostname), int(address.port or 80))

    def ask(
        self, method: str, path: str, given: object = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, body (parsed if it is JSON) and headers."""
        connection = http.client.HTTPConnection(*self._where, timeout=10)
        body = given if isinstance(given, str) else None if given is None else json.dumps(given)
        connection.request(method, path, body, {"User-Agent": "parity", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        try:
            return answer.status, json.loads(text), answer.headers
        except ValueError:
            return answer.status, text, answer.headers

    def create(self, upstream: str, **more: object) -> str:
        """The proxy's address."""
        given = {"name": "parity", "upstream": upstream, "listen": "127.0.0.1:0", **more}
        status, told, _ = self.ask("POST", P, given)
        assert status == 201, told
        return str(told["listen"])

    def toxic(self, kind: str, stream: str = "downstream", **attributes: int) -> None:
        given = {"type": kind, "stream": stream, "attributes": attributes}
        status, told, _ = self.ask("POST", T, given)
        assert status == 200, told


REAL = real.find(os.environ)


@pytest.fixture(scope="module", params=["embedded", "real"] if REAL else ["embedded"])
def base(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "embedded":
            yield stack.enter_context(hosted())
            return
        assert REAL is not None
        portal = stack.enter_context(start_blocking_portal("asyncio"))
        running = real.running(REAL, environ=os.environ)
        yield stack.enter_context(portal.wrap_async_context_manager(running)).url


@pytest.fixture
def api(base: str) -> Iterator[Server]:
    server = Server(base)
    server.ask("DELETE", f"{P}/parity")
    yield server
    server.ask("DELETE", f"{P}/parity")


@contextmanager
def serving(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """HOST:PORT of a server that does this with each client, in threads."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        threads: list[threading.Thread] = []

        def one(client: socket.socket) -> None:
            with client:
                try:
                    serve(client)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                client.settimeout(20)
                threads.append(threading.Thread(target=one, args=(client,), daemon=True))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    accepting.join()


def echo(client: socket.socket) -> None:
    while data := client.recv(65536):
        client.sendall(data)


def dial(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def ending(client: socket.socket) -> tuple[bytes, str]:
    got = b""
    try:
        while data := client.recv(65536):
            got += data
    except ConnectionResetError:
        return got, "reset"
    return got, "eof"


def took(act: Callable[[], object]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


@pytest.mark.skipif(REAL is None, reason=NO_REAL)
def test_the_real_one_says_its_version(base: str) -> None:
    assert Server(base).ask("GET", "/version")[1]["version"].count(".") == 2


# --- the API ------------------------------------------------------------------------------------


def test_version(api: Server) -> None:
    status, told, headers = api.ask("GET", "/version")
    assert (status, list(told)) == (200, ["version"])
    assert headers["Content-Type"] == "application/json;charset=utf-8"
    assert headers["X-Toxiproxy-Request-Id"]


def test_a_proxys_life(api: Server) -> None:
    listen = api.create("127.0.0.1:9")
    view = {"name": "parity", "upstream": "127.0.0.1:9", "listen": listen, "toxics": []}
    for method, path, given, status, enabled in (
        ("GET", f"{P}/parity", None, 200, True),
        ("POST", f"{P}/parity", {"enabled": False}, 200, False),
        ("PATCH", f"{P}/parity", {"enabled": True}, 200, True),
        ("PATCH", f"{P}/parity", {"name": "other"}, 200, True),
    ):
        got, told, headers = api.ask(method, path, given)
        assert (got, headers["Content-Type"]) == (status, "application/json")
        assert {key: told[key] for key in [*view, "enabled"]} == {**view, "enabled": enabled}
    assert api.ask("DELETE", f"{P}/parity")[:2] == (204, "")
    assert api.ask("GET", f"{P}/parity")[0] == 404


def test_a_proxy_that_begins_disabled(api: Server) -> None:
    assert api.create("127.0.0.1:9", enabled=False) == "127.0.0.1:0"
    _, told, _ = api.ask("POST", f"{P}/parity", {"enabled": True})
    assert told["listen"] != "127.0.0.1:0"


def test_a_toxics_life(api: Server) -> None:
    api.create("127.0.0.1:9")
    status, made, headers = api.ask("POST", T, {"type": "latency", "attributes": {"latency": 5}})
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert made == {
        "attributes": {"latency": 5, "jitter": 0},
        "name": "latency_downstream",
        "type": "latency",
        "stream": "downstream",
        "toxicity": 1,
    }
    path = f"{T}/latency_downstream"
    changed = {**made, "attributes": {"latency": 5, "jitter": 2}, "toxicity": 0.5}
    given = {"attributes": {"jitter": 2}, "toxicity": 0.5, "name": "n", "stream": "upstream"}
    for method in ("POST", "PATCH"):
        assert api.ask(method, path, given)[:2] == (200, changed)
    assert api.ask("GET", T)[:2] == (200, [changed])
    assert api.ask("DELETE", path)[:2] == (204, "")
    assert api.ask("GET", T)[:2] == (200, [])


def test_the_order_and_the_names_of_toxics(api: Server) -> None:
    api.create("127.0.0.1:9")
    for name, stream in (("d1", "downstream"), ("u1", "UPSTREAM"), ("d2", "downstream")):
        _, told, _ = api.ask("POST", T, {"type": "noop", "name": name, "stream": stream})
        assert told["stream"] == stream
    assert [toxic["name"] for toxic in api.ask("GET", T)[1]] == ["u1", "d1", "d2"]
    assert api.ask("POST", T, {"type": "noop", "name": "d1", "stream": "upstream"})[0] == 409
    assert api.ask("POST", T, {"type": "noop", "stream": "Upstream"})[1]["name"] == "noop_Upstream"


@pytest.mark.parametrize("sent", ["0.123456789", "1.0", "7", "-1", "1e-7", "0.1"])
def test_toxicity_is_a_32_bit_float(api: Server, sent: str) -> None:
    api.create("127.0.0.1:9")
    _, told, _ = api.ask("POST", T, f'{{"type": "noop", "toxicity": {sent}}}')
    assert told["toxicity"] == float(f"{struct.unpack('f', struct.pack('f', float(sent)))[0]:.8g}")


@pytest.mark.parametrize(
    ("path", "given", "status", "words"),
    [
        (P, "", 400, BAD + "EOF"),
        (P, "{", 400, BAD + "unexpected EOF"),
        (P, "nonsense", 400, BAD + "invalid character"),
        (P, "[]", 400, BAD + "json: cannot unmarshal array into Go value of type"),
        (P, {"name": 1}, 400, BAD + "json: cannot unmarshal number into Go struct field"),
        (P, {}, 400, "missing required field: name"),
        (P, {"name": "n"}, 400, "missing required field: upstream"),
        (P, {"name": "parity", "upstream": "a:1"}, 409, "proxy already exists"),
        (
            P,
            {"name": "n", "upstream": "a:1", "listen": "nohost"},
            500,
            "listen tcp: address nohost: missing port in address",
        ),
        ("/proxies/nobody", {}, 404, "proxy not found"),
        ("/proxies/nobody/toxics", {}, 404, "proxy not found"),
        (f"{T}/nothing", {}, 404, "toxic not found"),
        (T, {}, 400, "invalid toxic type"),
        (T, {"type": "Latency"}, 400, "invalid toxic type"),
        (T, {"type": "x", "stream": "y"}, 400, "stream was invalid, can be either upstream or"),
        (T, '{"type": "latency", "attributes": {"latency": 10.0}}', 400, BAD + "json: cannot"),
        (T, '{"type": "latency", "attributes": {"latency": 1e3}}', 400, BAD + "json: cannot"),
        (T, '{"type": "latency", "attributes": {"latency": "10"}}', 400, BAD + "json: cannot"),
        (T, '{"type": "latency", "toxicity": "1"}', 400, BAD + "json: cannot"),
    ],
)
def test_errors(api: Server, path: str, given: object, status: int, words: str) -> None:
    api.create("127.0.0.1:9")
    got, told, headers = api.ask("POST", path, given)
    assert (got, told["status"]) == (status, status)
    assert told["error"].startswith(words)
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_port_in_use(api: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        busy = f"127.0.0.1:{other.getsockname()[1]}"
        given = {"name": "parity", "upstream": "a:1", "listen": busy}
        status, told, _ = api.ask("POST", P, given)
        assert (status, told["error"]) == (500, f"listen tcp {busy}: bind: address already in use")
        assert api.ask("GET", f"{P}/parity")[0] == 404


def test_unknown_paths_wrong_methods_and_browsers(api: Server) -> None:
    for path in ("/", "/nothing", "/proxies/", "/version/"):
        status, told, headers = api.ask("GET", path)
        assert (status, told) == (404, "404 page not found\n")
        assert "X-Toxiproxy-Request-Id" not in headers
    for method, path in (("HEAD", P), ("PUT", P), ("DELETE", P), ("GET", "/reset")):
        assert api.ask(method, path)[:2] == (405, "")
    status, _, headers = api.ask("GET", "//proxies")
    assert (status, headers["Location"]) == (301, "/proxies")
    browser = {"User-Agent": "Mozilla/5.0"}
    assert api.ask("GET", P, **browser)[:2] == (403, "User agent not allowed\n")


def test_keys_in_any_case_nulls_and_what_trails(api: Server) -> None:
    api.create("127.0.0.1:9")
    text = '{"TYPE":"latency","Attributes":{"LATENCY":7,"jitter":null,"x":1.5}} and more'
    status, told, _ = api.ask("POST", T, text)
    assert (status, told["attributes"]) == (200, {"latency": 7, "jitter": 0})


def test_populate_and_reset(api: Server) -> None:
    listen = api.create("127.0.0.1:9")
    api.toxic("noop")
    same = {"name": "parity", "listen": listen, "upstream": "127.0.0.1:9"}
    api.ask("POST", f"{P}/parity", {"enabled": False})
    status, told, headers = api.ask("POST", "/populate", [{**same, "enabled": True}])
    assert (status, headers["Content-Type"]) == (201, "application/json")
    assert [proxy["name"] for proxy in told["proxies"]] == ["parity"]
    _, kept, _ = api.ask("GET", f"{P}/parity")
    assert (kept["enabled"], len(kept["toxics"])) == (False, 1)
    assert api.ask("POST", "/reset")[:2] == (204, "")
    _, after, _ = api.ask("GET", f"{P}/parity")
    assert (after["enabled"], after["toxics"]) == (True, [])
    api.toxic("noop")
    api.ask("POST", "/populate", [{**same, "upstream": "127.0.0.1:10"}])
    _, moved, _ = api.ask("GET", f"{P}/parity")
    assert (moved["upstream"], moved["enabled"], moved["toxics"]) == ("127.0.0.1:10", True, [])
    assert api.ask("POST", "/populate", [])[:2] == (201, {"proxies": None})
    status, told, headers = api.ask("POST", "/populate", [{**same, "name": ""}])
    assert (status, headers["Content-Type"]) == (400, "application/json")
    assert told == {
        "error": "missing required field: name at proxy 1",
        "status": 400,
        "proxies": None,
    }


# --- the data path ------------------------------------------------------------------------------


def test_disabling_closes_and_enabling_takes_the_same_port(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        with dial(where) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            api.ask("POST", f"{P}/parity", {"enabled": False})
            assert ending(client) == (b"", "eof")
        with pytest.raises(ConnectionRefusedError):
            dial(where)
        assert api.ask("POST", f"{P}/parity", {"enabled": True})[1]["listen"] == where
        with dial(where) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"


def test_a_server_that_cannot_be_reached(api: Server) -> None:
    with dial(api.create("127.0.0.1:1")) as client:
        assert ending(client) == (b"", "eof")


def test_the_end_of_either_direction_ends_both(api: Server) -> None:
    def late(client: socket.socket) -> None:
        while client.recv(65536):
            pass
        client.sendall(b"too late")

    with serving(late) as upstream, dial(api.create(upstream)) as client:
        client.sendall(b"ask")
        client.shutdown(socket.SHUT_WR)
        assert ending(client) == (b"", "eof")


def test_latency_does_not_add_up_within_one_and_does_over_two(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("latency", latency=200)
        with dial(where) as client:
            for _ in range(5):
                client.sendall(b"x")
                time.sleep(0.01)  # chunks of their own
            assert took(lambda: client.recv(1)) >= 0.1
            assert took(lambda: [client.recv(1) for _ in range(4)]) < 0.2 + SLACK_S / 10
        api.toxic("latency", "upstream", latency=100)
        with dial(where) as client:
            client.sendall(b"x")
            assert 0.3 <= took(lambda: client.recv(1)) < 0.3 + SLACK_S


def test_latency_removed_gives_what_it_held(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("latency", latency=60_000)
        with dial(where) as client:
            client.sendall(b"held")
            time.sleep(0.1)  # until it is held
            api.ask("DELETE", f"{T}/latency_downstream")
            assert client.recv(4) == b"held"


def test_bandwidth_is_of_a_thousand_bytes(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("bandwidth", rate=100)
        with dial(where) as client:
            client.sendall(b"x" * 50_000)

            def all_of_it() -> None:
                got = 0
                while got < 50_000:
                    got += len(client.recv(65536))

            assert 0.45 <= took(all_of_it) < 0.5 + SLACK_S


def test_bandwidth_of_nothing_stalls(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("bandwidth", rate=0)
        with dial(where) as client:
            client.sendall(b"x")
            client.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.recv(1)
            client.settimeout(20)
            api.ask("DELETE", f"{T}/bandwidth_downstream")
            assert client.recv(1) == b"x"


def test_slow_close(api: Server) -> None:
    with serving(lambda client: client.sendall(b"bye")) as upstream:
        where = api.create(upstream)
        api.toxic("slow_close", delay=300)
        with dial(where) as client:
            assert client.recv(3) == b"bye"
            assert 0.2 <= took(lambda: ending(client)) < 0.3 + SLACK_S


def test_timeout_ends_the_idle_and_its_removal_the_others(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("timeout", timeout=200)
        with dial(where) as client:
            assert 0.1 <= took(lambda: ending(client)) < 0.2 + SLACK_S
        api.ask("POST", f"{T}/timeout_downstream", {"attributes": {"timeout": 0}})
        with dial(where) as client:
            client.sendall(b"lost")
            time.sleep(0.1)  # until it is lost
            api.ask("DELETE", f"{T}/timeout_downstream")
            assert ending(client) == (b"", "eof")


def test_timeout_is_restarted_by_whatever_comes(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("timeout", "upstream", timeout=1000)
        with dial(where) as client:
            for _ in range(6):
                client.sendall(b".")
                time.sleep(0.3)
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):  # still open after 1.8 s
                client.recv(1)
            client.settimeout(20)
            assert ending(client)[0] == b""


def test_reset_peer(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        with dial(where) as old:
            old.sendall(b"x")
            assert old.recv(1) == b"x"
            api.toxic("reset_peer", timeout=50)
            with dial(where) as idle, dial(where) as client:
                client.sendall(b"x")
                assert ending(client) == (b"", "reset")
                idle.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    idle.recv(1)
            old.sendall(b"x")
            assert ending(old) == (b"", "eof")


def test_slicer_makes_pieces_of_half_to_all_of_the_average(api: Server) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("slicer", average_size=100, size_variation=10, delay=30_000)
        with dial(where) as client:
            client.sendall(b"x" * 1000)
            pieces = []
            while sum(pieces) < 1000:
                pieces.append(len(client.recv(65536)))
            assert len(pieces) == 16
            assert all(45 <= piece <= 80 for piece in pieces)


@pytest.mark.parametrize("limit", [0, 10, 100_000])
def test_limit_data(api: Server, limit: int) -> None:
    with serving(echo) as upstream:
        where = api.create(upstream)
        api.toxic("limit_data", bytes=limit)
        with dial(where) as client:
            client.sendall(b"x" * (limit + 1))
            assert ending(client) == (b"x" * limit, "eof")
