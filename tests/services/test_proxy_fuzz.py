"""Whatever is asked for, the server lives, and other proxies are not touched."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proxied import ask, connect, ends, running, server, serving_api

from chaosspot.services.proxy.toxics import KINDS
from chaosspot.services.proxy.toxics.pipe import INT_MAX

INTEGERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-INT_MAX - 1, INT_MAX),
    st.sampled_from([INT_MAX, -INT_MAX - 1, INT_MAX // 100, INT_MAX // 10**6, 10**6, 32768]),
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
REAL = sorted(KINDS)


async def passes(where: str, data: bytes) -> bool:
    """Whether an echo comes back whole; a connection that ends or stalls is no error."""
    try:
        async with asyncio.timeout(0.02):
            reader, writer = await connect(where)
            writer.write(data)
            writer.write_eof()
            return (await ends(reader))[0] == data
    except (OSError, TimeoutError):
        return False


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_attributes_are_refused_or_work(data: st.DataObject) -> None:
    tries = []
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(REAL))
        names = KINDS[kind].attributes.__struct_fields__
        attributes = {name: data.draw(INTEGERS) for name in names if data.draw(st.booleans())}
        stream = data.draw(st.sampled_from(["upstream", "downstream"]))
        tries.append({"type": kind, "stream": stream, "attributes": attributes})

    async def body() -> None:
        async with server() as upstream, serving_api() as (service, base):
            where = (await service.create("victim", upstream=upstream)).listen
            other = (await service.create("other", upstream=upstream)).listen
            path = "/proxies/victim/toxics"
            for each in tries:
                told = await ask(base, "POST", path, each)
                assert told.status in (200, 400, 409), told.text
                if told.status == 400:
                    assert told.json["error"].startswith("bad request body: ")
                await passes(where, b"x" * 2000)
                change = await ask(
                    base,
                    "POST",
                    f"{path}/{each['type']}_{each['stream']}",
                    {"attributes": each["attributes"]},
                )
                assert change.status in (200, 400, 404), change.text
            reader, writer = await connect(other)
            writer.write(b"x" * 2000)
            assert await reader.readexactly(2000) == b"x" * 2000
            writer.close()
            assert (await ask(base, "POST", "/reset")).status == 204
            reader, writer = await connect(where)
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"
            writer.close()

    running(body)


@settings(max_examples=100, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"]),
    path=st.lists(
        st.sampled_from(["proxies", "p", "toxics", "t", "populate", "reset", "%00"]), max_size=4
    ),
    body=st.one_of(JUNK, st.text(max_size=30)),
    fields=st.dictionaries(
        st.sampled_from(
            ["name", "NAME", "type", "listen", "upstream", "enabled", "toxicity", "attributes"]
        ),
        JUNK,
    ),
)
def test_any_request_is_answered(method: str, path: list[str], body: Any, fields: Any) -> None:
    async def main() -> None:
        async with serving_api() as (service, base):
            await service.create("p", upstream="127.0.0.1:9")
            await service.add_toxic("p", type="noop", name="t")
            for given_ in (body, fields, [fields]):
                told = await ask(base, method, "/" + "/".join(path), given_)
                assert told.status in (200, 201, 204, 301, 400, 404, 405, 409, 500)
                if told.status == 500:  # an address that is none, and never a bug
                    assert told.json["status"] == 500
                assert (await ask(base, "GET", "/proxies")).status == 200

    running(main)
