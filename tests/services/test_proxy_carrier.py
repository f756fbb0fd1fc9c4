"""Bytes from socket to socket, by the kernel or by hand; and many sockets, each in its turn."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from proxied import running

from chaosspot.services.proxy import poller as polling
from chaosspot.services.proxy.carrier import Carrier
from chaosspot.services.proxy.poller import Poller


@pytest.fixture(params=["splice", "by hand"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Carrier]:
    if request.param == "by hand":

        def unable(*args: object) -> int:
            raise OSError(errno.EINVAL, "not on this kernel")

        monkeypatch.setattr(os, "splice", unable)
    found = Carrier()
    yield found
    found.close()


@pytest.fixture
def pairs() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Makes connected pairs of TCP sockets that do not block."""
    made: list[socket.socket] = []

    def pair() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            two, _ = listener.accept()
        for sock in (one, two):
            sock.setblocking(False)
            made.append(sock)
        return one, two

    yield pair
    for sock in made:
        sock.close()


Pairs = Callable[[], tuple[socket.socket, socket.socket]]


def received(sock: socket.socket, size: int) -> bytes:
    sock.settimeout(10)
    got = b""
    while len(got) < size and (data := sock.recv(1 << 20)):
        got += data
    return got


def carry(carrier: Carrier, source: socket.socket, target: socket.socket) -> tuple[int, bytes]:
    end_s = time.monotonic() + 10
    while True:
        try:
            return carrier.carry(source, target)
        except BlockingIOError:  # not there yet
            assert time.monotonic() < end_s


def test_what_comes_goes_on(carrier: Carrier, pairs: Pairs) -> None:
    (client, source), (target, server) = pairs(), pairs()
    with pytest.raises(BlockingIOError):
        carrier.carry(source, target)
    for data in (b"x", os.urandom(50_000)):
        client.sendall(data)
        count = 0
        while count < len(data):
            carried, rest = carry(carrier, source, target)
            assert rest == b""
            count += carried
        assert received(server, len(data)) == data
    client.close()
    assert carry(carrier, source, target) == (0, b"")


def test_what_there_is_no_room_for_is_handed_back_and_does_not_get_to_others(
    carrier: Carrier, pairs: Pairs
) -> None:
    (client, source), (target, server), (other_client, other), (other_target, other_server) = (
        pairs() for _ in range(4)
    )
    data = os.urandom(20_000_000)
    sent = carried = 0
    rest = b""
    while not rest:
        with suppress(BlockingIOError):
            sent += client.send(data[sent : sent + 200_000])
        count, rest = carry(carrier, source, target)
        carried += count
    other_client.sendall(b"other")
    assert carry(carrier, other, other_target) == (5, b"")
    assert received(other_server, 5) == b"other"
    got = received(server, carried - len(rest))
    assert got + rest == data[:carried]


def test_a_target_that_is_gone_is_told_from_a_source_that_is(
    carrier: Carrier, pairs: Pairs
) -> None:
    (client, source), (target, server) = pairs(), pairs()
    server.close()
    client.sendall(b"x")
    assert carry(carrier, source, target)[0] == 1  # answered by a reset
    client.sendall(b"lost")
    select.select([target], [], [], 10)  # the reset has come
    with pytest.raises(BrokenPipeError):
        carry(carrier, source, target)
    (client, source), (target, server) = pairs(), pairs()
    client.sendall(b"fresh")
    assert carry(carrier, source, target) == (5, b"")
    assert received(server, 5) == b"fresh"  # nothing of what was lost
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    with pytest.raises(ConnectionResetError):
        carry(carrier, source, target)


def test_no_file_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        Carrier().close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_ready_sockets_let_the_loop_go_on(pairs: Pairs) -> None:
    """Each is served in its turn, and the loop is not kept by all of them at once."""

    async def body() -> None:
        poller = Poller()
        calls: list[int] = []
        clients = []

        def busy(number: int) -> Callable[[], None]:
            def call() -> None:
                calls.append(number)
                end_s = time.monotonic() + polling._TURN_S / 2
                while time.monotonic() < end_s:
                    pass

            return call

        for number in range(100):
            client, sock = pairs()
            client.sendall(b"x")
            clients.append(sock)
            poller.reading(sock, busy(number))
        turns = []
        while len(set(calls)) < 100:
            before = len(calls)
            await asyncio.sleep(0)
            turns.append(len(calls) - before)
        assert max(turns) <= 3
        assert len(calls) < 300  # nobody twice long before others
        for sock in clients:
            poller.reading(sock, None)
        calls.clear()
        await asyncio.sleep(0)
        assert calls == []
        poller.close()

    running(body)


def test_reading_and_writing_are_watched_apart(pairs: Pairs) -> None:
    async def body() -> None:
        poller = Poller()
        client, sock = pairs()
        calls: list[str] = []
        poller.writing(sock, lambda: calls.append("write"))
        poller.reading(sock, lambda: calls.append("read"))
        await asyncio.sleep(0.01)
        assert set(calls) == {"write"}
        poller.writing(sock, None)
        client.sendall(b"x")
        calls.clear()
        async with asyncio.timeout(5):
            while not calls:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert set(calls) == {"read"}
        poller.reading(sock, None)
        client.close()  # nobody is told, over and over
        calls.clear()
        await asyncio.sleep(0.01)
        assert calls == []
        poller.close()

    running(body)
