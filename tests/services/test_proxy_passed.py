"""What is known of the bytes that have come to a proxy of the real server."""

from __future__ import annotations

import asyncio
import socket

import pytest
from proxied import connect, running, server, serving_api
from waiting import until

from chaosspot.services.proxy import Client
from chaosspot.services.proxy.passed import Passed, passed, received
from chaosspot.services.proxy.sockets import open_bytes

GO = """\
# HELP toxiproxy_proxy_received_bytes_total The total number of bytes received
# TYPE toxiproxy_proxy_received_bytes_total counter
toxiproxy_proxy_received_bytes_total{direction="downstream",listener="127.0.0.1:1",proxy="p",\
upstream="127.0.0.1:9"} 1.048576e+06
toxiproxy_proxy_received_bytes_total{direction="upstream",listener="127.0.0.1:1",proxy="p",\
upstream="127.0.0.1:9"} 24
toxiproxy_proxy_received_bytes_total{direction="upstream",listener="127.0.0.1:2",proxy="a\\"b",\
upstream="127.0.0.1:9"} 7
# TYPE toxiproxy_proxy_sent_bytes_total counter
toxiproxy_proxy_sent_bytes_total{direction="upstream",listener="127.0.0.1:1",proxy="p",\
upstream="127.0.0.1:9"} 99
go_goroutines 8
"""


def test_counters_are_read_as_go_writes_them() -> None:
    found = received(GO)
    assert found == {"p": 1_048_600, 'a\\"b': 7}
    assert found["nobody"] == 0


A, B = ("127.0.0.1", 1), ("127.0.0.1", 2)


@pytest.mark.parametrize(
    ("before", "after", "grew"),
    [
        (Passed(), Passed(), False),
        (Passed(), Passed(ended_bytes=1), True),
        (Passed(open={A: 5}), Passed(open={A: 5}), False),
        (Passed(open={A: 5}), Passed(open={A: 6}), True),
        (Passed(open={A: 5}), Passed(open={A: 5, B: 0}), False),
        (Passed(open={A: 5}), Passed(open={A: 5, B: 1}), True),
        (Passed(open={A: 5}), Passed(ended_bytes=5), False),  # it ended, and had no more to say
        (Passed(open={A: 5}), Passed(ended_bytes=6), True),
        (Passed(ended_bytes=9, open={A: 5, B: 2}), Passed(ended_bytes=11, open={A: 5}), False),
    ],
)
def test_growth(before: Passed, after: Passed, grew: bool) -> None:
    assert after.since(before) is grew


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_counts_both_ways_on_each_connection(host: str) -> None:
    try:
        listener = socket.create_server((host, 0), family=_family(host))
    except OSError:
        pytest.skip(f"no {host} here")
    port = listener.getsockname()[1]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with listener, socket.create_connection((host, port)) as one, listener.accept()[0] as other:
        peer = one.getsockname()[:2]
        assert open_bytes(where) == {peer: 0}
        one.sendall(b"x" * 10)
        other.sendall(b"y" * 5)
        one.recv(5, socket.MSG_WAITALL)
        assert open_bytes(where) == {peer: 15}
        with socket.create_connection((host, port)) as second, listener.accept()[0]:
            assert open_bytes(where) == {peer: 15, second.getsockname()[:2]: 0}
        one.shutdown(socket.SHUT_WR)
        assert other.recv(100) == b"x" * 10
        assert other.recv(100) == b""
        assert open_bytes(where)[peer] == 15, "an end is no byte"
    assert open_bytes(where) == {}


def test_an_address_that_is_none_or_elsewhere_has_no_connections() -> None:
    for where in ("", "garbage", "localhost:1", "127.0.0.1:1", "[::1]:1", "192.0.2.1:80"):
        assert open_bytes(where) == {}


def test_open_and_ended_connections_count_together() -> None:
    async def body() -> None:
        async with (
            serving_api(metrics=True) as (_, url),
            Client(url) as client,
            server() as upstream,
        ):
            listen = (await client.create("p", upstream=upstream)).listen
            await client.create("other", upstream=upstream)

            async def look() -> Passed:
                return passed("p", listen, await client.metrics())

            began = await look()
            reader, writer = await connect(listen)
            writer.write(b"12345")
            assert await reader.readexactly(5) == b"12345"
            spoke = await look()
            assert spoke.since(began)
            assert spoke.ended_bytes == 0
            assert not (await look()).since(spoke)
            writer.close()
            await writer.wait_closed()
            await until(lambda: open_bytes(listen) == {})
            while (ended := await look()).ended_bytes < 10:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            assert not ended.since(spoke)
            assert ended.since(began)

    running(body)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
