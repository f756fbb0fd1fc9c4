"""Proxies on sockets: created, moved, disabled, refilled, and what that is to connections."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from proxied import (
    ask,
    connect,
    ends,
    port_of,
    proxying,
    refused,
    running,
    server,
    serving_api,
)
from waiting import until

from chaosspot.services.proxy import ProxyError, ProxyService, gate
from chaosspot.services.proxy import connection as proxy_connection
from chaosspot.services.proxy.listener import Address, resolve

ENDINGS = ("eof", "reset")


def test_bytes_go_through_both_ways() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            reader, writer = await connect(where)
            for size in (1, 1000, 300_000):
                writer.write(b"x" * size)
                assert await reader.readexactly(size) == b"x" * size
            writer.close()
            await until(lambda: service.traffic("p").open == 0)
            traffic = service.traffic("p")
            assert (traffic.connections, traffic.struck) == (1, {})
            assert traffic.upstream_bytes == traffic.downstream_bytes == 301_001

    running(body)


def test_a_proxy_that_begins_disabled_keeps_its_text_until_it_is_started() -> None:
    async def body() -> None:
        async with ProxyService() as service, server() as upstream:
            made = await service.create("p", upstream=upstream, enabled=False)
            assert (made.listen, made.enabled) == ("127.0.0.1:0", False)
            started = await service.enable("p")
            assert port_of(started.listen) > 0
            assert not await refused(started.listen)

    running(body)


def test_an_empty_listen_is_loopback_and_no_host_is_too() -> None:
    async def body() -> None:
        async with serving_api() as (_, base):
            for name, listen in (("a", ""), ("b", ":0")):
                given = {"name": name, "upstream": "127.0.0.1:9", "listen": listen}
                made = (await ask(base, "POST", "/proxies", given)).json
                assert made["listen"].startswith("127.0.0.1:")
                assert port_of(made["listen"]) > 0
            local = {"name": "c", "upstream": "127.0.0.1:9", "listen": "localhost:0"}
            made = (await ask(base, "POST", "/proxies", local)).json
            assert made["listen"].startswith("127.0.0.1:")

    running(body)


def test_addresses_beyond_loopback_need_to_be_allowed() -> None:
    async def body() -> None:
        async with ProxyService() as service:
            with pytest.raises(ProxyError, match=r"0\.0\.0\.0:0: expected a loopback address"):
                await service.create("p", upstream="127.0.0.1:9", listen="0.0.0.0:0")
            assert await service.proxies() == {}
        async with ProxyService(beyond_loopback=True) as service:
            made = await service.create("p", upstream="127.0.0.1:9", listen="0.0.0.0:0")
            assert made.listen.startswith("0.0.0.0:")

    running(body)


def test_disabling_closes_both_sides_at_once_and_enabling_takes_the_same_port() -> None:
    seen: list[str] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        seen.append((await ends(reader))[1])

    async def body() -> None:
        async with server(record) as upstream, proxying(upstream=upstream) as (service, where):
            await service.add_toxic("p", type="latency", attributes={"latency": 1})
            reader, writer = await connect(where)
            writer.write(b"x")
            await reader.readexactly(1)
            off = await service.disable("p")
            assert (off.enabled, off.listen, len(off.toxics)) == (False, where, 1)
            assert await ends(reader) == (b"", "eof")
            await until(lambda: seen == ["eof"])
            assert await refused(where)
            on = await service.enable("p")
            assert (on.enabled, on.listen, on.toxics) == (True, where, off.toxics)
            reader, writer = await connect(where)
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"

    running(body)


def test_nobody_can_take_the_port_of_a_disabled_proxy() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.disable("p")
            for reuse in (0, 1):
                with socket.socket() as thief:
                    thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                    with pytest.raises(OSError, match="in use"):  # noqa: PT012
                        thief.bind(("127.0.0.1", port_of(where)))
                        thief.listen()
            for _ in range(20):  # TIME_WAIT and old connections do not matter
                await service.enable("p")
                _, writer = await connect(where)
                await service.disable("p")
                writer.close()

    running(body)


def test_disabling_twice_and_enabling_twice_is_once() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            for _ in range(2):
                assert (await service.disable("p")).listen == where
            for _ in range(2):
                assert (await service.enable("p")).listen == where

    running(body)


def test_removing_closes_everything() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            reader, writer = await connect(where)
            writer.write(b"x")
            await reader.readexactly(1)
            await service.remove("p")
            assert (await ends(reader))[1] == "eof"
            assert await refused(where)
            with pytest.raises(ProxyError, match="proxy not found"):
                await service.proxy("p")
            made = await service.create("p", upstream="127.0.0.1:9", listen=where)
            assert made.listen == where

    running(body)


def test_leaving_the_service_closes_everything() -> None:
    async def body() -> None:
        async with server() as upstream:
            async with ProxyService() as service:
                where = (await service.create("p", upstream=upstream)).listen
                reader, _ = await connect(where)
            assert (await ends(reader))[1] in ENDINGS
            assert await refused(where)
            with pytest.raises(RuntimeError, match="not running"):
                await service.proxies()

    running(body)


def test_the_same_addresses_are_no_change() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            upstream = (await service.proxy("p")).upstream
            reader, writer = await connect(where)
            for listen in (where, where.replace("127.0.0.1", "localhost")):
                await service.update("p", listen=listen, upstream=upstream)
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"

    running(body)


@pytest.mark.parametrize("what", ["listen", "upstream"])
def test_another_address_closes_connections_and_keeps_toxics(what: str) -> None:
    async def body() -> None:
        async with proxying() as (service, where), server() as other:
            await service.add_toxic("p", type="noop")
            reader, writer = await connect(where)
            writer.write(b"x")
            await reader.readexactly(1)
            given = {"listen": "127.0.0.1:0"} if what == "listen" else {"upstream": other}
            after = await service.update("p", **given)
            assert (await ends(reader))[1] == "eof"
            assert (after.listen == where) == (what == "upstream")
            assert len(after.toxics) == 1
            reader, writer = await connect(after.listen)
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"

    running(body)


def test_an_empty_upstream_is_accepted_by_http_alone() -> None:
    async def body() -> None:
        async with serving_api() as (service, base):
            where = (await service.create("p", upstream="127.0.0.1:9")).listen
            told = await ask(base, "POST", "/proxies/p", {"upstream": ""})
            assert (told.status, told.json["upstream"]) == (200, "")
            reader, _ = await connect(where)
            assert await ends(reader) == (b"", "eof")
            with pytest.raises(ProxyError, match="upstream=''"):
                await service.update("p", upstream="")

    running(body)


def test_a_failed_update_leaves_everything_as_it_was() -> None:
    async def body() -> None:
        async with proxying() as (service, where), server() as busy:
            before = await service.proxy("p")
            reader, writer = await connect(where)
            for given in (
                {"listen": busy},
                {"listen": busy, "upstream": busy},
                {"listen": "garbage"},
                {"upstream": "http://127.0.0.1"},
            ):
                with pytest.raises(ProxyError):
                    await service.update("p", **given)
                assert await service.proxy("p") == before
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
            await service.disable("p")
            disabled = await service.update("p", listen=busy)
            assert (disabled.listen, disabled.enabled) == (busy, False)
            with pytest.raises(ProxyError, match=f"listen tcp {busy}: bind: address already"):
                await service.enable("p")
            assert await service.proxy("p") == disabled

    running(body)


def test_a_failed_creation_leaves_nothing() -> None:
    async def body() -> None:
        async with ProxyService() as service, server() as busy:
            with pytest.raises(ProxyError, match="address already in use"):
                await service.create("p", upstream="127.0.0.1:9", listen=busy)
            assert await service.proxies() == {}
            await service.create("p", upstream="127.0.0.1:9")

    running(body)


def test_two_creations_of_one_name_at_once_are_one() -> None:
    async def body() -> None:
        async with ProxyService() as service:
            made = await asyncio.gather(
                *(service.create("p", upstream="127.0.0.1:9") for _ in range(5)),
                return_exceptions=True,
            )
            assert sum(isinstance(each, ProxyError) for each in made) == 4
            assert len(await service.proxies()) == 1

    running(body)


@pytest.mark.parametrize("how", ["disable", "remove"])
def test_what_happens_while_a_name_is_looked_up_counts(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, found = asyncio.Event(), asyncio.Event()

    async def slowly(host: str, port: int) -> Address:
        if host == "slow.example":
            looking.set()
            await found.wait()
        return await resolve("127.0.0.1", port)

    monkeypatch.setattr(gate, "resolve", slowly)

    async def body() -> None:
        async with proxying() as (service, where):
            moving = asyncio.create_task(service.update("p", listen="slow.example:0"))
            await looking.wait()
            await getattr(service, how)("p")
            found.set()
            if how == "remove":
                with pytest.raises(ProxyError, match="removed meanwhile"):
                    await moving
            else:
                after = await moving
                assert (after.enabled, after.listen) == (False, "slow.example:0")
            assert await refused(where)

    running(body)


def test_a_proxy_on_ipv6() -> None:
    async def body() -> None:
        async with ProxyService() as service, server() as upstream:
            made = await service.create("p", upstream=upstream, listen="[::1]:0")
            assert made.listen.startswith("[::1]:")
            again = await service.create("q", upstream=made.listen)
            for where in (made.listen, again.listen):
                reader, writer = await connect(where)
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"

    running(body)


# --- what cannot be reached ---------------------------------------------------------------------


@pytest.mark.parametrize("upstream", ["127.0.0.1:1", "nowhere.invalid:80", "http://127.0.0.1:80"])
def test_a_server_that_cannot_be_reached_closes_the_client(upstream: str) -> None:
    async def body() -> None:
        async with serving_api() as (_, base):
            given = {"name": "p", "upstream": upstream}
            where = (await ask(base, "POST", "/proxies", given)).json["listen"]
            reader, _ = await connect(where)
            assert await ends(reader) == (b"", "eof")

    running(body)


@asynccontextmanager
async def full_backlog() -> AsyncIterator[str]:
    """HOST:PORT of a server that lets nobody in any more: dials to it hang."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        where = f"127.0.0.1:{deaf.getsockname()[1]}"
        clients = []
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(deaf.getsockname())
            clients.append(client)
        try:
            yield where
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize("how", ["disable", "remove", "update", "reset"])
def test_a_dial_that_hangs_holds_up_nobody(how: str) -> None:
    async def body() -> None:
        async with full_backlog() as deaf, proxying(upstream=deaf) as (service, where):
            readers = [(await connect(where))[0] for _ in range(5)]
            await until(lambda: service.traffic("p").connections == 5)
            began_s = time.monotonic()
            if how == "update":
                await service.update("p", upstream="127.0.0.1:1")
            elif how == "reset":
                await service.reset()
                assert not await refused(where)
                await service.remove("p")
            else:
                await getattr(service, how)("p")
            for reader in readers:
                assert await ends(reader) == (b"", "eof")
            assert time.monotonic() - began_s < 1.0

    running(body)


def test_a_dial_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_connection, "DIAL_S", 0.2)

    async def body() -> None:
        async with full_backlog() as deaf, proxying(upstream=deaf) as (_, where):
            reader, _ = await connect(where)
            assert await ends(reader) == (b"", "eof")

    running(body)


def test_too_many_open_files_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with proxying() as (_, where):
            calls = []

            def full(self: socket.socket) -> tuple[socket.socket, object]:
                if not calls and self.getsockname()[1] == port_of(where):
                    calls.append(1)
                    raise OSError(24, "too many open files")
                return accept(self)

            accept: Callable[[socket.socket], tuple[socket.socket, object]] = socket.socket.accept
            reader, writer = await connect(where)
            monkeypatch.setattr(socket.socket, "accept", full)
            late_reader, late_writer = await connect(where)
            late_writer.write(b"y")
            assert await late_reader.readexactly(1) == b"y"
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            assert calls == [1]

    running(body)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "upstream",
    [
        "http://127.0.0.1:80",
        "127.0.0.1",
        "",
        ":80",
        "127.0.0.1:0",
        "a:b:c",
        "h:99999",
        "a b:1",
        "h:x",
    ],
)
def test_an_upstream_that_is_no_address_is_refused(upstream: str) -> None:
    async def body() -> None:
        async with ProxyService() as service:
            with pytest.raises(ProxyError) as told:
                await service.create("p", upstream=upstream)
            assert str(told.value) == (
                f"upstream={upstream!r}: expected host:port, such as 127.0.0.1:9000"
            )
            assert await service.proxies() == {}

    running(body)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a#1", "a?b", "é", ".", "..", "a\n"])
def test_a_name_that_does_not_survive_in_a_url_is_refused(name: str) -> None:
    async def body() -> None:
        async with proxying() as (service, _):
            with pytest.raises(ProxyError, match="name="):
                await service.create(name, upstream="127.0.0.1:9")
            with pytest.raises(ProxyError, match="name="):
                await service.add_toxic("p", type="noop", name=name)
            assert list(await service.proxies()) == ["p"]

    running(body)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "nothing"}, "type='nothing': expected one of latency, "),
        ({"type": "noop", "stream": "sideways"}, "stream='sideways'"),
        ({"type": "noop", "toxicity": 1.5}, "toxicity=1.5: expected 0 to 1"),
        ({"type": "noop", "toxicity": float("nan")}, "toxicity=nan"),
        ({"type": "latency", "attributes": {"delay": 5}}, "delay"),
        ({"type": "bandwidth", "attributes": {"rate": -5}}, "rate=-5"),
        ({"type": "bandwidth", "attributes": {"rate": 1.0}}, "rate"),
    ],
)
def test_a_bad_toxic_is_refused_and_changes_nothing(given: dict[str, object], words: str) -> None:
    async def body() -> None:
        async with proxying() as (service, _):
            with pytest.raises(ProxyError, match=words):
                await service.add_toxic("p", **given)  # type: ignore[arg-type]
            assert (await service.proxy("p")).toxics == ()

    running(body)


def test_toxics_under_control_of_python() -> None:
    async def body() -> None:
        async with proxying() as (service, _):
            made = await service.add_toxic("p", type="latency", attributes={"latency": 5})
            assert (made.name, made.toxicity) == ("latency_downstream", 1.0)
            with pytest.raises(ProxyError, match="toxic already exists"):
                await service.add_toxic("p", type="latency")
            changed = await service.update_toxic("p", made.name, attributes={"jitter": 1})
            assert changed.attributes.latency == 5  # type: ignore[attr-defined]
            assert changed.attributes.jitter == 1  # type: ignore[attr-defined]
            with pytest.raises(ProxyError, match="jitter"):
                await service.update_toxic("p", made.name, attributes={"jitter": 2**62})
            assert (await service.proxy("p")).toxics == (changed,)
            await service.remove_toxic("p", made.name)
            for act in (service.update_toxic, service.remove_toxic):
                with pytest.raises(ProxyError, match="toxic not found"):
                    await act("p", made.name)

    running(body)
