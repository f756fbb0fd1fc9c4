"""A relay leads bytes both ways, and ends and resets as they come."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaosspot.services.relay import Relay

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def bound() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.bind(("127.0.0.1", 0))
    return made


@asynccontextmanager
async def relayed(upstream: tuple[str, int]) -> AsyncIterator[tuple[str, int]]:
    async def dial() -> socket.socket:
        made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, upstream)
        return made

    relay = Relay(bound(), dial)
    await relay.open()
    host, _, port = relay.address.partition(":")
    try:
        yield host, int(port)
    finally:
        await relay.close()


async def test_bytes_go_both_ways_and_an_end_goes_one_way() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(-1)  # to the client's end of file
        writer.write(data.upper())
        writer.write_eof()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with server, relayed(server.sockets[0].getsockname()) as address:
        reader, writer = await asyncio.open_connection(*address)
        sent = b"quiet " * 100_000
        writer.write(sent)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), 30) == sent.upper()
        writer.close()


async def test_a_reset_is_passed_on() -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with server, relayed(server.sockets[0].getsockname()) as address:
        reader, writer = await asyncio.open_connection(*address)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(-1), 30)
        writer.close()


async def test_who_cannot_be_led_on_is_reset() -> None:
    nobody = bound()
    async with relayed(nobody.getsockname()) as address:
        reader, writer = await asyncio.open_connection(*address)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(-1), 30)
        writer.close()
    nobody.close()


async def test_closing_drops_who_is_connected() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with server:
        async with relayed(server.sockets[0].getsockname()) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"x")
            await writer.drain()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(-1), 30)
        writer.close()
