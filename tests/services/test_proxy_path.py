"""What toxics do to real connections, and what happens to the API meanwhile."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proxied import (
    Reader,
    Writer,
    ask,
    connect,
    ends,
    proxying,
    refused,
    reset,
    running,
    server,
    serving_api,
)
from waiting import until

from chaosspot.services.proxy import ProxyService

API_BOUND_S = 1.0


async def one_echo(where: str, data: bytes = b"x") -> None:
    reader, writer = await connect(where)
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    writer.close()


async def struck(service: ProxyService, name: str, times: int = 1) -> None:
    await until(lambda: service.traffic("p").struck.get(name, 0) == times)


# --- the ends of connections --------------------------------------------------------------------


def test_the_end_of_either_direction_ends_both() -> None:
    async def slow_reply(reader: Reader, writer: Writer) -> None:
        await reader.read()
        writer.write(b"too late")

    async def body() -> None:
        async with server(slow_reply) as upstream, proxying(upstream=upstream) as (_, where):
            reader, writer = await connect(where)
            writer.write(b"ask")
            writer.write_eof()
            assert await ends(reader) == (b"", "eof")

    running(body)


def test_half_close_lets_the_answer_come() -> None:
    async def slow_reply(reader: Reader, writer: Writer) -> None:
        asked = await reader.read()
        writer.write(asked.upper() * 100_000)
        await writer.drain()

    async def body() -> None:
        async with server(slow_reply) as upstream, proxying(upstream=upstream) as (service, where):
            await service.add_toxic("p", type="half_close", stream="upstream")
            reader, writer = await connect(where)
            writer.write(b"ask")
            writer.write_eof()
            assert await ends(reader) == (b"ASK" * 100_000, "eof")
            await until(lambda: service.traffic("p").open == 0)

    running(body)


def test_the_servers_end_comes_after_its_data() -> None:
    data = os.urandom(3_000_000)

    async def tell(reader: Reader, writer: Writer) -> None:
        writer.write(data)
        await writer.drain()

    async def body() -> None:
        async with server(tell) as upstream, proxying(upstream=upstream) as (service, where):
            for toxics in (0, 1):
                if toxics:
                    await service.add_toxic("p", type="noop")
                reader, _ = await connect(where)
                await asyncio.sleep(0)  # a reader that comes late gets it all
                assert await ends(reader) == (data, "eof")

    running(body)


def test_a_client_that_resets_closes_the_server() -> None:
    seen: list[str] = []

    async def record(reader: Reader, writer: Writer) -> None:
        writer.write(await reader.readexactly(1))
        seen.append((await ends(reader))[1])

    async def body() -> None:
        async with server(record) as upstream, proxying(upstream=upstream) as (service, where):
            reader, writer = await connect(where)
            writer.write(b"x")
            await reader.readexactly(1)
            reset(writer)
            await until(lambda: seen == ["eof"])
            await until(lambda: service.traffic("p").open == 0)

    running(body)


# --- toxics on sockets --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_latency_is_one_way(stream: str) -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic("p", type="latency", stream=stream, attributes={"latency": 80})
            reader, writer = await connect(where)
            began_s = time.monotonic()
            writer.write(b"x")
            await reader.readexactly(1)
            assert 0.08 <= time.monotonic() - began_s < 1.0
            assert service.traffic("p").struck == {f"latency_{stream}": 1}

    running(body)


def test_a_toxic_acts_on_open_connections_and_its_removal_frees_what_it_holds() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            reader, writer = await connect(where)
            writer.write(b"before")
            assert await reader.readexactly(6) == b"before"
            await service.add_toxic("p", type="latency", attributes={"latency": 3_600_000})
            await service.add_toxic("p", type="bandwidth", attributes={"rate": 0})
            writer.write(b"held")
            await struck(service, "latency_downstream")
            await service.remove_toxic("p", "bandwidth_downstream")
            await service.remove_toxic("p", "latency_downstream")
            assert await reader.readexactly(4) == b"held"
            writer.write(b"after")
            assert await reader.readexactly(5) == b"after"

    running(body)


def test_timeout_closes_and_so_does_its_removal() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic("p", type="timeout", attributes={"timeout": 60})
            reader, _ = await connect(where)
            assert await ends(reader) == (b"", "eof")  # idle, from the start
            await service.update_toxic("p", "timeout_downstream", attributes={"timeout": 0})
            reader, writer = await connect(where)
            writer.write(b"lost")
            await struck(service, "timeout_downstream", 2)
            await service.remove_toxic("p", "timeout_downstream")
            assert await ends(reader) == (b"", "eof")
            await one_echo(where)

    running(body)


def test_a_chatty_connection_outlives_timeout_and_not_reset_now() -> None:
    """A heartbeat every 50 ms against 400 ms, both ways to read a timeout."""

    async def chat(where: str, lasting_s: float) -> tuple[float, str]:
        reader, writer = await connect(where)
        began_s = time.monotonic()
        ending = asyncio.create_task(ends(reader))
        while not ending.done() and time.monotonic() - began_s < lasting_s:
            writer.write(b".")
            await asyncio.wait([ending], timeout=0.05)
        chatted_s = time.monotonic() - began_s
        return chatted_s, (await ending)[1]

    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic(
                "p", type="timeout", stream="upstream", attributes={"timeout": 400}
            )
            chatted_s, how = await chat(where, 1.0)
            assert chatted_s >= 1.0
            assert how in ("eof", "reset")
            await service.reset()
            await service.add_toxic("p", type="reset_now", attributes={"timeout": 400})
            chatted_s, how = await chat(where, 5.0)
            assert 0.35 <= chatted_s < 3.0
            assert how == "reset"

    running(body)


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_reset_peer_resets_connections_that_are_opened_after_it(stream: str) -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            old_reader, old_writer = await connect(where)
            old_writer.write(b"x")
            await old_reader.readexactly(1)
            await service.add_toxic("p", type="reset_peer", stream=stream)
            idle_reader, _ = await connect(where)
            reader, writer = await connect(where)
            writer.write(b"x")
            assert await ends(reader) == (b"", "reset")
            old_writer.write(b"x")
            assert await ends(old_reader) == (b"", "eof")
            assert service.traffic("p").open == 1
            await service.remove_toxic("p", f"reset_peer_{stream}")
            await service.disable("p")
            assert await ends(idle_reader) == (b"", "eof")  # nothing is left of it

    running(body)


def test_a_reset_peer_that_runs_no_more_leaves_a_clean_end() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic("p", type="reset_peer")
            reader, writer = await connect(where)
            await until(lambda: service.traffic("p").open == 1)
            await service.update_toxic("p", "reset_peer_downstream", toxicity=0.0)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await service.disable("p")
            assert await ends(reader) == (b"", "eof")

    running(body)


def test_reset_now_resets_an_idle_connection_and_both_of_its_sides() -> None:
    seen: list[str] = []

    async def record(reader: Reader, writer: Writer) -> None:
        writer.write(b"x")
        seen.append((await ends(reader))[1])

    async def body() -> None:
        async with server(record) as upstream, proxying(upstream=upstream) as (service, where):
            reader, _ = await connect(where)
            await reader.readexactly(1)
            await service.add_toxic("p", type="reset_now")
            assert await ends(reader) == (b"", "reset")
            await until(lambda: seen == ["reset"])

    running(body)


def test_slow_close_delays_the_end_and_not_the_data() -> None:
    async def tell(reader: Reader, writer: Writer) -> None:
        writer.write(b"bye")

    async def body() -> None:
        async with server(tell) as upstream, proxying(upstream=upstream) as (service, where):
            await service.add_toxic("p", type="slow_close", attributes={"delay": 150})
            began_s = time.monotonic()
            reader, _ = await connect(where)
            assert await reader.readexactly(3) == b"bye"
            data_s = time.monotonic() - began_s
            assert await ends(reader) == (b"", "eof")
            assert time.monotonic() - began_s >= 0.15
            assert data_s < 1.0

    running(body)


@pytest.mark.parametrize("limit", [1, 100_000])
def test_limit_data_passes_as_much_and_closes(limit: int) -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic("p", type="limit_data", attributes={"bytes": limit})
            reader, writer = await connect(where)
            writer.write(b"x" * 300_000)
            got, how = await ends(reader)
            assert (len(got), how) == (limit, "eof")

    running(body)


def test_limit_data_of_nothing_leaves_an_idle_connection_open() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic("p", type="limit_data", attributes={"bytes": 0})
            reader, writer = await connect(where)
            await until(lambda: service.traffic("p").open == 1)
            assert not reader.at_eof()
            writer.write(b"x")
            assert await ends(reader) == (b"", "eof")

    running(body)


def test_slicer_and_corrupt_on_sockets() -> None:
    data = os.urandom(200_000)

    async def body() -> None:
        async with proxying(seed=5) as (service, where):
            sizes = {"average_size": 500, "size_variation": 100}
            await service.add_toxic("p", type="slicer", attributes=sizes)
            await one_echo(where, data)
            await service.add_toxic("p", type="corrupt", attributes={"every": 10_000})
            got = []
            for _ in range(2):
                reader, writer = await connect(where)
                writer.write(data)
                got.append(await reader.readexactly(len(data)))
                writer.close()
            wrong = [sum(a != b for a, b in zip(data, each, strict=True)) for each in got]
            assert wrong == [20, 20]
            assert got[0] != got[1]  # each connection has a stream of its own

    running(body)


def test_refuse_lets_open_connections_go_on() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            reader, writer = await connect(where)
            writer.write(b"a")
            await reader.readexactly(1)
            await service.add_toxic("p", type="refuse")
            assert await refused(where)
            writer.write(b"b")
            assert await reader.readexactly(1) == b"b"
            assert (await service.proxy("p")).enabled
            assert service.traffic("p").struck == {}, "who is connected is not hit"
            await service.disable("p")
            await service.enable("p")
            assert await refused(where)
            await service.update_toxic("p", "refuse_downstream", toxicity=0.0)
            await one_echo(where)
            await service.update_toxic("p", "refuse_downstream", toxicity=1.0)
            await service.remove_toxic("p", "refuse_downstream")
            await one_echo(where)

    running(body)


def test_refuse_has_something_to_do_once_whoever_came_is_not_connected_any_more() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            await service.add_toxic("p", type="refuse")
            assert await refused(where)
            assert service.traffic("p").struck == {}, "nobody is known to want to come"
            await service.update_toxic("p", "refuse_downstream", toxicity=0.0)
            _, writer = await connect(where)
            await until(lambda: service.traffic("p").open == 1)
            await service.update_toxic("p", "refuse_downstream", toxicity=1.0)
            assert service.traffic("p").struck == {}
            writer.close()
            await struck(service, "refuse_downstream")
            await service.remove_toxic("p", "refuse_downstream")
            assert service.traffic("p").struck == {}

    running(body)


def test_refuse_hits_the_connections_that_the_seed_says() -> None:
    async def hit(seed: int) -> list[str]:
        async with proxying(seed=seed) as (service, where):
            await service.add_toxic("p", type="refuse", toxicity=0.5)
            found = []
            for _ in range(24):
                try:
                    reader, writer = await connect(where)
                    writer.write(b"x")
                    found.append((await reader.read(1)).decode() or "eof")
                    writer.close()
                except ConnectionResetError:
                    found.append("reset")
            return found

    async def body() -> None:
        first = await hit(3)
        assert set(first) == {"x", "reset"}
        assert await hit(3) == first
        assert await hit(4) != first

    running(body)


def test_equal_seeds_strike_the_same_connections() -> None:
    async def hit(seed: int) -> list[bool]:
        async with proxying(seed=seed) as (service, where):
            limit = {"bytes": 0}
            await service.add_toxic("p", type="limit_data", toxicity=0.5, attributes=limit)
            found = []
            for _ in range(24):
                reader, writer = await connect(where)
                writer.write(b"x")
                found.append(not await reader.read(1))
                writer.close()
            return found

    async def body() -> None:
        first = await hit(11)
        assert 0 < sum(first) < 24
        assert await hit(11) == first
        assert await hit(12) != first

    running(body)


def test_toxicity_zero_has_no_effect_at_all() -> None:
    """200 connections under a reset_peer that never runs: every byte, and a clean end both ways."""
    seen: list[tuple[int, str]] = []

    async def record(reader: Reader, writer: Writer) -> None:
        data = await reader.readexactly(1000)
        writer.write(data)
        more, how = await ends(reader)
        seen.append((len(more), how))

    async def one(where: str) -> None:
        data = os.urandom(1000)
        reader, writer = await connect(where)
        writer.write(data)
        assert await reader.readexactly(1000) == data
        writer.write_eof()
        assert await ends(reader) == (b"", "eof")
        writer.close()

    async def body() -> None:
        async with server(record) as upstream, proxying(upstream=upstream) as (service, where):
            for stream in ("upstream", "downstream"):
                for kind in ("reset_peer", "timeout", "reset_now"):
                    await service.add_toxic("p", type=kind, stream=stream, toxicity=0.0)
            await asyncio.gather(*(one(where) for _ in range(200)))
            await until(lambda: len(seen) == 200)
            assert set(seen) == {(0, "eof")}
            for toxic in (await service.proxy("p")).toxics:
                await service.remove_toxic("p", toxic.name)
            assert service.traffic("p").struck == {}

    running(body)


# --- the API, whatever the peers do -------------------------------------------------------------


@asynccontextmanager
async def stalled(where: str) -> AsyncIterator[socket.socket]:
    """A client that has asked for much and reads nothing."""
    loop = asyncio.get_running_loop()
    host, _, port = where.rpartition(":")
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, (host, int(port)))
        await loop.sock_sendall(client, b"go")
        yield client


def test_a_stalled_reader_holds_up_no_request() -> None:
    """40 MB on their way to somebody who does not read: every change is done at once."""
    total = 40_000_000
    blocked = asyncio.Event()

    async def pour(reader: Reader, writer: Writer) -> None:
        await reader.readexactly(2)
        for _ in range(40):
            writer.write(b"x" * (total // 40))
            if writer.transport.get_write_buffer_size():
                blocked.set()
            await writer.drain()

    async def body() -> None:
        async with server(pour) as upstream, serving_api() as (service, base):
            where = (await service.create("p", upstream=upstream)).listen
            async with stalled(where) as client:
                await blocked.wait()

                async def quickly(method: str, path: str, given: object = None) -> None:
                    began_s = time.monotonic()
                    told = await ask(base, method, path, given)
                    assert time.monotonic() - began_s < API_BOUND_S
                    assert told.status in (200, 204)

                toxics = "/proxies/p/toxics"
                attributes = {
                    "bandwidth": {"rate": 10_000},
                    "slicer": {"average_size": 100},
                    "reset_peer": {"timeout": 60_000},
                }
                for kind in ("latency", "bandwidth", "slicer", "noop", "slow_close", "limit_data"):
                    given = {"type": kind, "name": kind, "attributes": attributes.get(kind, {})}
                    if kind == "limit_data":
                        given["attributes"] = {"bytes": 10**12}
                    await quickly("POST", toxics, given)
                    await quickly("POST", f"{toxics}/{kind}", {})
                    await quickly("GET", "/proxies")
                for kind in ("bandwidth", "latency", "slicer", "noop", "limit_data", "slow_close"):
                    await quickly("DELETE", f"{toxics}/{kind}")
                await quickly("GET", toxics)
                loop = asyncio.get_running_loop()
                got = 0
                while got < total:  # and not a byte was lost
                    data = await loop.sock_recv(client, 1 << 20)
                    assert data
                    got += len(data)
                assert got == total
            async with stalled(where):
                await until(lambda: service.traffic("p").open == 1)
                await quickly("POST", "/proxies/p", {"enabled": False})
                await quickly("POST", "/reset")
            async with stalled(where):
                await until(lambda: service.traffic("p").open == 1)
                await quickly("DELETE", "/proxies/p")

    running(body, within_s=60.0)


def test_small_pieces_let_others_have_their_turn() -> None:
    """A slicer that makes single bytes of much is long at work; the API answers meanwhile."""

    async def pour(reader: Reader, writer: Writer) -> None:
        await reader.readexactly(2)
        while True:
            writer.write(b"x" * 1_000_000)
            await writer.drain()

    async def body() -> None:
        async with server(pour) as upstream, serving_api() as (service, base):
            where = (await service.create("p", upstream=upstream)).listen
            await service.add_toxic("p", type="slicer", attributes={"average_size": 1})
            reader, writer = await connect(where)
            writer.write(b"go")
            reading = asyncio.create_task(reader.readexactly(20_000))
            began_s = time.monotonic()
            for _ in range(5):
                assert (await ask(base, "GET", "/proxies")).status == 200
            assert time.monotonic() - began_s < 5 * API_BOUND_S
            assert await reading == b"x" * 20_000
            writer.close()

    running(body)


def test_two_hundred_connections_at_once() -> None:
    async def body() -> None:
        async with proxying() as (service, where):
            gate = asyncio.Event()

            async def one(number: int) -> None:
                reader, writer = await connect(where)
                data = b"%06d" % number * 100
                writer.write(data)
                assert await reader.readexactly(600) == data
                if service.traffic("p").open == 200:
                    gate.set()
                await gate.wait()
                writer.close()

            await asyncio.gather(*(one(number) for number in range(200)))
            await until(lambda: service.traffic("p").open == 0)
            assert service.traffic("p").connections == 200

    running(body)
