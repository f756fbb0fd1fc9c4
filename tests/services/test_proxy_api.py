"""Toxiproxy's HTTP API: paths, statuses, bodies, errors, and Go's rules of JSON."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from proxied import (
    Answer,
    Reader,
    Writer,
    ask,
    connect,
    port_of,
    reset,
    running,
    server,
    serving_api,
)
from waiting import until

from chaosspot.services.proxy import api, gojson
from chaosspot.services.proxy.values import single

Ask = Callable[..., Awaitable[Answer]]
TEXT = "text/plain; charset=utf-8"
LATENCY = {"type": "latency", "attributes": {"latency": 10}}


def with_api(body: Callable[[Ask], Awaitable[None]], **options: Any) -> None:
    """Run ``body`` with a server that has one proxy, ``p``."""

    async def main() -> None:
        async with serving_api(**options) as (_, base):

            async def tell(method: str, path: str, given: object = None, **more: Any) -> Answer:
                return await ask(base, method, path, given, more.get("headers"))

            made = await tell("POST", "/proxies", {"name": "p", "upstream": "127.0.0.1:9"})
            assert made.status == 201
            await body(tell)

    running(main)


# --- routes -------------------------------------------------------------------------------------


def test_version() -> None:
    async def body(tell: Ask) -> None:
        told = await tell("GET", "/version")
        assert (told.status, told.body) == (200, b'{"version": "2.12.0"}\n')
        assert told.kind == "application/json;charset=utf-8"

    with_api(body)


def test_the_life_of_a_proxy_over_http() -> None:
    async def body(tell: Ask) -> None:
        assert (await tell("DELETE", "/proxies/p")).status == 204
        empty = await tell("GET", "/proxies")
        assert (empty.status, empty.body, empty.kind) == (200, b"{}", "application/json")
        given = {"name": "redis", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:6379"}
        made = await tell("POST", "/proxies", given)
        assert (made.status, made.kind) == (201, "application/json")
        listen = made.json["listen"]
        assert list(made.json) == ["name", "listen", "upstream", "enabled", "toxics"]
        assert made.json == {**given, "listen": listen, "enabled": True, "toxics": []}
        assert port_of(listen) > 0
        same = await tell("GET", "/proxies/redis")
        assert (same.status, same.body) == (200, made.body)
        assert (await tell("GET", "/proxies")).json == {"redis": made.json}
        for method in ("POST", "PATCH"):
            off = await tell(method, "/proxies/redis", {"enabled": False})
            assert (off.status, off.json) == (200, {**made.json, "enabled": False})
            on = await tell(method, "/proxies/redis", {"enabled": True})
            assert on.json == made.json
        gone = await tell("DELETE", "/proxies/redis")
        assert (gone.status, gone.body) == (204, b"")
        assert (await tell("GET", "/proxies/redis")).status == 404

    with_api(body)


def test_what_cannot_be_set_is_ignored() -> None:
    async def body(tell: Ask) -> None:
        given = {"name": "q", "upstream": "127.0.0.1:9", "toxics": [LATENCY], "Logger": {}}
        made = await tell("POST", "/proxies", given)
        assert (made.status, made.json["toxics"]) == (201, [])
        renamed = await tell("PATCH", "/proxies/q", {"name": "r", "toxics": [LATENCY]})
        assert (renamed.status, renamed.json) == (200, made.json)
        assert sorted((await tell("GET", "/proxies")).json) == ["p", "q"]

    with_api(body)


def test_the_life_of_a_toxic_over_http() -> None:
    async def body(tell: Ask) -> None:
        none = await tell("GET", "/proxies/p/toxics")
        assert (none.status, none.body) == (200, b"[]")
        made = await tell("POST", "/proxies/p/toxics", LATENCY)
        assert (made.status, made.kind) == (200, "application/json")
        assert made.text == (
            '{"attributes":{"latency":10,"jitter":0},"name":"latency_downstream",'
            '"type":"latency","stream":"downstream","toxicity":1}'
        )
        path = "/proxies/p/toxics/latency_downstream"
        assert (await tell("GET", path)).body == made.body
        for method in ("POST", "PATCH"):
            some = {"attributes": {"jitter": 3}, "name": "n", "type": "noop", "stream": "upstream"}
            changed = await tell(method, path, {**some, "toxicity": 0.5})
            assert changed.status == 200
            attributes = {"latency": 10, "jitter": 3}
            assert changed.json == {**made.json, "attributes": attributes, "toxicity": 0.5}
        assert (await tell("GET", "/proxies/p")).json["toxics"] == [changed.json]
        gone = await tell("DELETE", path)
        assert (gone.status, gone.body) == (204, b"")
        assert (await tell("GET", path)).status == 404

    with_api(body)


def test_toxics_are_listed_upstream_first_in_their_order() -> None:
    async def body(tell: Ask) -> None:
        for name, stream in (
            ("d1", "downstream"),
            ("u1", "upstream"),
            ("d2", "downstream"),
            ("u2", "Upstream"),
        ):
            made = await tell(
                "POST", "/proxies/p/toxics", {"name": name, "type": "noop", "stream": stream}
            )
            assert (made.status, made.json["stream"]) == (200, stream)
        listed = (await tell("GET", "/proxies/p/toxics")).json
        assert [toxic["name"] for toxic in listed] == ["u1", "u2", "d1", "d2"]
        again = await tell(
            "POST", "/proxies/p/toxics", {"name": "d1", "type": "noop", "stream": "upstream"}
        )
        assert again.status == 409  # one name over both streams
        default = await tell("POST", "/proxies/p/toxics", {"type": "noop", "stream": "UPSTREAM"})
        assert (default.json["name"], default.json["stream"]) == ("noop_UPSTREAM", "UPSTREAM")

    with_api(body)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("latency", {"latency": 1, "jitter": 0}),
        ("bandwidth", {"rate": 0}),
        ("slow_close", {"delay": 0}),
        ("timeout", {"timeout": 0}),
        ("reset_peer", {"timeout": 0}),
        ("slicer", {"average_size": 64, "size_variation": 0, "delay": 0}),
        ("limit_data", {"bytes": 0}),
        ("noop", {}),
    ],
)
def test_every_toxic_shows_all_of_its_attributes(kind: str, attributes: dict[str, int]) -> None:
    async def body(tell: Ask) -> None:
        some = {key: value for key, value in attributes.items() if value}
        made = await tell("POST", "/proxies/p/toxics", {"type": kind, "attributes": some})
        assert made.json["attributes"] == attributes

    with_api(body)


def test_populate() -> None:
    async def body(tell: Ask) -> None:
        one = {"name": "one", "listen": "127.0.0.1:0", "upstream": "a:1"}
        two = {"name": "two", "upstream": "b:2", "enabled": False, "listen": "127.0.0.1:0"}
        made = await tell("POST", "/populate", [one, two])
        assert (made.status, made.kind) == (201, "application/json")
        assert [proxy["name"] for proxy in made.json["proxies"]] == ["one", "two"]
        assert [proxy["enabled"] for proxy in made.json["proxies"]] == [True, False]
        assert made.json["proxies"][1]["listen"] == "127.0.0.1:0"
        nothing = await tell("POST", "/populate", [])
        assert (nothing.status, nothing.body) == (201, b'{"proxies":null}')
        listen = made.json["proxies"][0]["listen"]
        await tell("POST", "/proxies/one/toxics", LATENCY)
        await tell("POST", "/proxies/one", {"enabled": False})
        kept = await tell("POST", "/populate", [{**one, "listen": listen, "enabled": True}])
        (same,) = kept.json["proxies"]
        assert (same["enabled"], len(same["toxics"])) == (False, 1)
        moved = await tell("POST", "/populate", [{**one, "listen": listen, "upstream": "c:3"}])
        (other,) = moved.json["proxies"]
        assert (other["upstream"], other["enabled"], other["toxics"]) == ("c:3", True, [])
        anywhere = {"name": "one", "upstream": "d:4"}  # where it listens is left to us
        (same,) = (await tell("POST", "/populate", [anywhere])).json["proxies"]
        assert (same["upstream"], same["listen"]) == ("d:4", listen)
        assert sorted((await tell("GET", "/proxies")).json) == ["one", "p", "two"]

    with_api(body)


def test_populate_fails_as_a_whole_before_and_in_part_after() -> None:
    async def body(tell: Ask) -> None:
        good = {"name": "good", "upstream": "a:1", "listen": "127.0.0.1:0"}
        for bad, words in (
            ([good, {"upstream": "b:2"}], "missing required field: name at proxy 2"),
            ([{"name": "n"}, good], "missing required field: upstream at proxy 1"),
        ):
            told = await tell("POST", "/populate", bad)
            assert (told.status, told.kind) == (400, "application/json")
            assert told.text == f'{{"error":"{words}","status":400,"proxies":null}}'
            assert list((await tell("GET", "/proxies")).json) == ["p"]
        bad_json = await tell("POST", "/populate", "{")
        assert bad_json.json["error"].startswith("bad request body: ")
        assert (bad_json.status, bad_json.json["proxies"]) == (400, None)
        wrong = await tell("POST", "/populate", {"name": "n"})
        assert wrong.json["error"].startswith("bad request body: json: cannot unmarshal object")
        with socket.create_server(("127.0.0.1", 0)) as other:
            busy = f"127.0.0.1:{other.getsockname()[1]}"
            some = [good, {**good, "name": "bad", "listen": busy}, {**good, "name": "never"}]
            told = await tell("POST", "/populate", some)
            assert told.status == told.json["status"] == 500
            assert told.json["error"] == f"listen tcp {busy}: bind: address already in use"
            assert [proxy["name"] for proxy in told.json["proxies"]] == ["good"]
            # A replacement that cannot listen leaves the old one as it was.
            await tell("POST", "/proxies/good/toxics", LATENCY)
            before = (await tell("GET", "/proxies/good")).json
            assert (await tell("POST", "/populate", [{**good, "listen": busy}])).status == 500
            assert (await tell("GET", "/proxies/good")).json == before

    with_api(body)


def test_reset_enables_all_and_removes_toxics() -> None:
    async def body(tell: Ask) -> None:
        before = (await tell("GET", "/proxies/p")).json
        await tell("POST", "/proxies/p/toxics", LATENCY)
        await tell("POST", "/proxies/p/toxics", {"type": "timeout", "stream": "upstream"})
        await tell("POST", "/proxies/p", {"enabled": False})
        told = await tell("POST", "/reset")
        assert (told.status, told.body) == (204, b"")
        assert (await tell("GET", "/proxies/p")).json == before

    with_api(body)


def test_metrics_are_there_when_asked_for() -> None:
    async def body(tell: Ask) -> None:
        assert (await tell("GET", "/metrics")).status == 404

    with_api(body)

    async def main() -> None:
        async with server() as upstream, serving_api(metrics=True) as (service, base):
            listen = (await service.create("p", upstream=upstream)).listen
            assert (await ask(base, "POST", "/metrics")).body == b""
            reader, writer = await connect(listen)
            writer.write(b"x" * 1000)
            await reader.readexactly(1000)
            assert b"1000" not in (await ask(base, "GET", "/metrics")).body  # not over yet
            writer.close()
            await until(lambda: not service.traffic("p").open)
            told = await ask(base, "GET", "/metrics")
            assert told.kind.startswith("text/plain")
            for way in ("upstream", "downstream"):
                labels = f'direction="{way}",listener="{listen}",proxy="p",upstream="{upstream}"'
                for name in ("received", "sent"):
                    line = f"toxiproxy_proxy_{name}_bytes_total{{{labels}}} 1000"
                    assert line in told.text.splitlines()

    running(main)


def test_metrics_leave_out_what_was_sent_to_somebody_who_went_away() -> None:
    async def flood(reader: Reader, writer: Writer) -> None:
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()

    async def main() -> None:
        async with server(flood) as upstream, serving_api(metrics=True) as (service, base):
            reader, writer = await connect((await service.create("p", upstream=upstream)).listen)
            await reader.readexactly(1000)
            reset(writer)
            await until(lambda: not service.traffic("p").open)
            told = (await ask(base, "GET", "/metrics")).text
            (received,) = re.findall('received_bytes_total{direction="downstream".*} (.*)', told)
            assert int(received) >= 1000
            assert 'sent_bytes_total{direction="downstream"' not in told

    running(main)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing",
        "/proxies/",
        "/version/",
        "/proxies/p/",
        "/proxies/p/toxics/",
        "/proxies/p/toxics/t/more",
        "/proxies/a%2Fb",
        "/metrics",
    ],
)
def test_unknown_paths(path: str) -> None:
    async def body(tell: Ask) -> None:
        told = await tell("GET", path)
        assert (told.status, told.body, told.kind) == (404, b"404 page not found\n", TEXT)
        assert "x-toxiproxy-request-id" not in told.headers

    with_api(body)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("HEAD", "/proxies"),
        ("PUT", "/proxies"),
        ("DELETE", "/proxies"),
        ("POST", "/version"),
        ("GET", "/reset"),
        ("GET", "/populate"),
        ("PUT", "/proxies/p"),
        ("PUT", "/proxies/p/toxics/t"),
        ("DELETE", "/proxies/p/toxics"),
    ],
)
def test_wrong_methods(method: str, path: str) -> None:
    async def body(tell: Ask) -> None:
        told = await tell(method, path, headers={"User-Agent": "Mozilla/5.0"})
        assert (told.status, told.body) == (405, b"")
        assert "x-toxiproxy-request-id" not in told.headers

    with_api(body)


def test_double_slashes_are_redirected() -> None:
    async def body(tell: Ask) -> None:
        told = await tell("GET", "//proxies///p")
        assert (told.status, told.headers["location"]) == (301, "/proxies/p")

    with_api(body)


def test_browsers_are_blocked() -> None:
    async def body(tell: Ask) -> None:
        told = await tell("GET", "/proxies", headers={"User-Agent": "Mozilla/5.0 (X11)"})
        assert (told.status, told.body, told.kind) == (403, b"User agent not allowed\n", TEXT)
        assert (await tell("GET", "/proxies", headers={"User-Agent": "x Mozilla/"})).status == 200

    with_api(body)


def test_every_answer_of_a_known_path_has_an_id_of_its_own() -> None:
    async def body(tell: Ask) -> None:
        ids = set()
        for path in ("/version", "/proxies", "/proxies/p", "/proxies/nobody"):
            told = await tell("GET", path)
            ids.add(told.headers["x-toxiproxy-request-id"])
        assert len(ids) == 4

    with_api(body)


def test_names_with_spaces_and_dots_work_and_slashes_are_lost() -> None:
    async def body(tell: Ask) -> None:
        for name, path in (("a b", "a%20b"), ("a.b", "a.b"), ("ü", "%C3%BC"), ("a#1", "a%231")):
            assert (await tell("POST", "/proxies", {"name": name, "upstream": "x"})).status == 201
            assert (await tell("GET", f"/proxies/{path}")).json["name"] == name
        assert (await tell("POST", "/proxies", {"name": "a/b", "upstream": "x"})).status == 201
        assert (await tell("GET", "/proxies/a%2Fb")).status == 404
        assert "a/b" in (await tell("GET", "/proxies")).json

    with_api(body)


# --- errors -------------------------------------------------------------------------------------

P, T = "/proxies", "/proxies/p/toxics"
BAD = "bad request body: "
CANNOT = BAD + "json: cannot unmarshal "
NO_STREAM = "stream was invalid, can be either upstream or downstream"


def at(listen: str) -> dict[str, str]:
    return {"name": "n", "upstream": "a:1", "listen": listen}


def latency(literal: str) -> str:
    return f'{{"type": "latency", "attributes": {{"latency": {literal}}}}}'


@pytest.mark.parametrize(
    ("path", "given", "status", "words"),
    [
        (P, "", 400, BAD + "EOF"),
        (P, "   ", 400, BAD + "EOF"),
        (P, "{", 400, BAD + "unexpected EOF"),
        (P, '{"name": "a', 400, BAD + "unexpected EOF"),
        (P, "nonsense", 400, BAD + "invalid character 'n' looking for beginning of value"),
        (P, "{name: 1}", 400, BAD + "invalid character 'n' looking for beginning of object key"),
        (P, '{"name": NaN}', 400, BAD + "invalid character 'N' looking"),
        (P, "\ufeff{}", 400, BAD + "invalid character"),
        (P, "[]", 400, CANNOT + "array into Go value"),
        (P, '{"name": 1, "upstream": "a:1"}', 400, CANNOT + "number"),
        (P, '{"name": "n", "upstream": "a:1", "enabled": "yes"}', 400, CANNOT),
        (P, {}, 400, "missing required field: name"),
        (P, "null", 400, "missing required field: name"),
        (P, {"name": "", "upstream": "a:1"}, 400, "missing required field: name"),
        (P, {"name": "n"}, 400, "missing required field: upstream"),
        (P, {"name": "p", "upstream": "a:1"}, 409, "proxy already exists"),
        (P, at("nohost"), 500, "listen tcp: address nohost: missing port in address"),
        (P, at("a:b:c"), 500, "listen tcp: address a:b:c: too many colons in address"),
        (P, at("[::1"), 500, "listen tcp: address [::1: missing ']' in address"),
        (P, at("127.0.0.1:70000"), 500, "listen tcp: address 70000: invalid port"),
        (P, at("0.0.0.0:0"), 500, "listen tcp 0.0.0.0:0: expected a loopback"),
        ("/proxies/nobody", {}, 404, "proxy not found"),
        ("/proxies/nobody", "{", 404, "proxy not found"),
        ("/proxies/p", "{", 400, BAD + "unexpected EOF"),
        ("/proxies/p", {"listen": "garbage"}, 500, "address garbage: missing port in address"),
        ("/proxies/nobody/toxics", {}, 404, "proxy not found"),
        ("/proxies/nobody/toxics/t", {}, 404, "proxy not found"),
        ("/proxies/p/toxics/t", {}, 404, "toxic not found"),
        (T, "", 400, BAD + "EOF"),
        (T, {}, 400, "invalid toxic type"),
        (T, {"type": "Latency"}, 400, "invalid toxic type"),
        (T, {"type": "nothing", "stream": "sideways"}, 400, NO_STREAM),
        (T, {"type": "latency", "stream": ""}, 400, NO_STREAM),
        (T, {"type": "latency", "attributes": 5}, 400, CANNOT + "number"),
        (
            T,
            latency('"10"'),
            400,
            CANNOT + "string into Go struct field .attributes.latency of type int64",
        ),
        (T, latency("10.0"), 400, CANNOT + "number 10.0 into"),
        (T, latency("1e3"), 400, CANNOT + "number 1e3 into"),
        (T, latency("1.5"), 400, CANNOT + "number 1.5 into"),
        (T, latency("true"), 400, CANNOT + "bool into"),
        (T, latency("9223372036854775808"), 400, CANNOT + "number"),
        (T, '{"type": "latency", "toxicity": "1"}', 400, CANNOT + "string into"),
        (T, '{"type": "latency", "toxicity": 1e999}', 400, CANNOT + "number 1e999"),
        (T, '{"type": "latency", "toxicity": 1e39}', 400, CANNOT + "number 1e39"),
        (T, {"type": "bandwidth", "attributes": {"rate": -1}}, 400, BAD + "rate=-1: expected 0 to"),
        (T, {"type": "slicer"}, 400, BAD + "average_size=0: expected 1 to"),
    ],
)
def test_errors(path: str, given: object, status: int, words: str) -> None:
    async def body(tell: Ask) -> None:
        before = (await tell("GET", "/proxies")).json
        told = await tell("POST", path, given)
        assert told.status == status
        assert list(told.json) == ["error", "status"]
        assert told.json["status"] == status
        assert told.json["error"].startswith(words)
        assert told.body.endswith(b"}\n")
        assert told.kind == TEXT
        assert told.headers["x-content-type-options"] == "nosniff"
        assert (await tell("GET", "/proxies")).json == before

    with_api(body)


def test_a_toxic_that_is_there_and_one_that_is_not() -> None:
    async def body(tell: Ask) -> None:
        await tell("POST", T, LATENCY)
        again = await tell("POST", T, {"type": "latency", "attributes": {"latency": 1.5}})
        assert (again.status, again.json["error"]) == (409, "toxic already exists")
        for method in ("GET", "DELETE"):
            none = await tell(method, f"{T}/other")
            assert (none.status, none.json["error"]) == (404, "toxic not found")
            nobody = await tell(method, "/proxies/nobody/toxics/other")
            assert (nobody.status, nobody.json["error"]) == (404, "proxy not found")

    with_api(body)


def test_a_failed_change_leaves_the_toxic_as_it_was() -> None:
    async def body(tell: Ask) -> None:
        made = (await tell("POST", T, LATENCY)).json
        path = f"{T}/latency_downstream"
        for bad in ({"latency": 77, "jitter": "x"}, {"latency": 77, "jitter": 2**62}):
            told = await tell("POST", path, {"attributes": bad, "toxicity": 0.1})
            assert told.status == 400
            assert (await tell("GET", path)).json == made

    with_api(body)


# --- Go's JSON ----------------------------------------------------------------------------------


def test_keys_match_in_any_case_and_unknown_ones_are_ignored() -> None:
    async def body(tell: Ask) -> None:
        text = '{"TYPE":"latency","Attributes":{"LATENCY":7,"other":1.5},"more":{}} trailing'
        made = await tell("POST", T, text)
        assert (made.status, made.json["attributes"]["latency"]) == (200, 7)
        nulls = '{"attributes":{"latency":null},"toxicity":null,"name":null}'
        same = await tell("POST", f"{T}/latency_downstream", nulls)
        assert (same.status, same.json) == (200, made.json)
        empty = await tell("PATCH", f"{T}/latency_downstream", "{}")
        assert empty.json == made.json

    with_api(body)


def test_any_content_type_will_do() -> None:
    async def body(tell: Ask) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        assert (await tell("POST", T, LATENCY, headers=headers)).status == 200

    with_api(body)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("0.123456789", "0.12345679"),
        ("1.0", "1"),
        ("1", "1"),
        ("0.1", "0.1"),
        ("7", "7"),
        ("-1", "-1"),
        ("-0.5", "-0.5"),
        ("0", "0"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("1e21", "1e+21"),
        ("123456789", "123456790"),
        ("3.4e38", "3.4e+38"),
    ],
)
def test_toxicity_is_a_32_bit_float(sent: str, shown: str) -> None:
    async def body(tell: Ask) -> None:
        made = await tell("POST", T, f'{{"type":"noop","toxicity":{sent}}}')
        assert re.search('"toxicity":(.*)}', made.text)[1] == shown  # type: ignore[index]

    with_api(body)


def test_every_32_bit_float_is_shown_so_that_it_can_be_read_again() -> None:
    for number in (single(1 / n) for n in range(1, 3000)):
        shown = bytes(gojson.float32(number))
        assert single(float(shown)) == number
        assert msgspec.json.decode(shown, type=float) == float(shown)


def test_text_is_written_as_go_writes_it() -> None:
    async def body(tell: Ask) -> None:
        text = json.dumps({"name": "<a&b>", "upstream": "é\ud800"})
        made = await tell("POST", "/proxies", text)
        assert b'"name":"\\u003ca\\u0026b\\u003e"' in made.body
        assert made.json["upstream"] == "é\ufffd"
        deep = await tell("POST", "/proxies", "[" * 100_000)
        assert (deep.status, deep.json["error"]) == (400, BAD + "exceeded max depth")

    with_api(body)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_BODY_S", 0.1)

    async def body() -> None:
        async with serving_api() as (_, base):
            reader, writer = await connect(base.removeprefix("http://"))
            writer.write(b"POST /proxies HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 400 " in head.splitlines()[0]
            assert BAD.encode() + b"i/o timeout" in await reader.readline()
            writer.close()

    running(body)


def test_a_body_that_is_too_long_is_refused() -> None:
    async def body(tell: Ask) -> None:
        told = await tell("POST", "/proxies", '{"name": "' + "x" * (1 << 20) + '"}')
        assert (told.status, told.json["error"]) == (400, BAD + "it is too long")

    with_api(body)
