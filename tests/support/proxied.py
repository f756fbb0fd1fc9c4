"""Proxies under test: in virtual time, and on sockets with servers to lead to."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from chaosspot.services.proxy import Api, ProxyService
from chaosspot.services.proxy.chain import Chain
from chaosspot.services.proxy.toxics.pipe import Event
from chaosspot.services.proxy.values import Toxic, toxic_of

END = Event.END
Item: TypeAlias = "bytes | Event"
Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
_NO_LINGER = struct.pack("ii", 1, 0)

# --- virtual time -----------------------------------------------------------------------------


def toxic(type: str, **given: Any) -> Toxic:  # noqa: A002
    """A toxic from its type and attributes; ``name``, ``stream`` and ``toxicity`` are not those."""
    rest = {key: given.pop(key) for key in ("name", "stream", "toxicity") if key in given}
    return toxic_of(type=type, attributes=given, **rest)


def chain(*toxics: Toxic, seed: int = 1, connection: int = 0, now_s: float = 0.0) -> Chain:
    return Chain(toxics, seed=seed, proxy="p", connection=connection, now_s=now_s)


def pass_time(
    line: Chain, arrivals: Iterable[tuple[float, Item]] = (), *, until_s: float = 1e6
) -> list[tuple[float, Item]]:
    """What leaves a chain and when, if it is taken at once and this comes as soon as it may."""
    waiting = list(arrivals)
    left: list[tuple[float, Item]] = []
    now_s = 0.0
    while True:
        while waiting and waiting[0][0] <= now_s and line.room:
            came_s, item = waiting.pop(0)
            if isinstance(item, Event):
                line.end()
            else:
                line.put(item, max(came_s, now_s))
            line.advance(now_s)
        line.advance(now_s)
        while line.outbox:
            item_ = line.outbox.popleft()
            left.append((round(now_s, 6), item_ if isinstance(item_, Event) else item_.data))
            line.advance(now_s)
        if waiting and waiting[0][0] <= now_s and line.room:
            continue
        coming_s = [max(at, now_s) for at, _ in waiting[:1] if at > now_s]
        next_s = min([line.next_s, *coming_s])
        if next_s > until_s:
            return left
        now_s = next_s


def joined(left: Iterable[tuple[float, Item]]) -> bytes:
    return b"".join(item for _, item in left if not isinstance(item, Event))


# --- sockets ----------------------------------------------------------------------------------


def running(body: Callable[[], Awaitable[None]], *, within_s: float = 30.0) -> None:
    async def main() -> None:
        async with asyncio.timeout(within_s):
            await body()

    asyncio.run(main())


@asynccontextmanager
async def server(
    answer: Callable[[Reader, Writer], Awaitable[None]] | None = None,
) -> AsyncIterator[str]:
    """HOST:PORT of a server; by default it sends back what it gets, and ends when that ends."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await (answer or echo)(reader, writer)
        writer.close()
        tasks.discard(task)

    found = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{found.sockets[0].getsockname()[1]}"
    finally:
        found.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def proxying(
    *, upstream: str | None = None, **options: Any
) -> AsyncIterator[tuple[ProxyService, str]]:
    """A service with one proxy ``p``, to an echo unless it is told otherwise; and where it is."""
    async with ProxyService(**options) as service:
        if upstream is None:
            async with server() as upstream_:
                yield service, (await service.create("p", upstream=upstream_)).listen
        else:
            yield service, (await service.create("p", upstream=upstream)).listen


async def connect(where: str) -> tuple[Reader, Writer]:
    host, _, port = where.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port))


async def ends(reader: Reader) -> tuple[bytes, str]:
    """What comes until the end, and how it ends: eof or reset."""
    got = b""
    try:
        while data := await reader.read(65536):
            got += data
    except ConnectionResetError:
        return got, "reset"
    return got, "eof"


async def refused(where: str) -> bool:
    try:
        _, writer = await connect(where)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def reset(writer: Writer) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def port_of(where: str) -> int:
    return int(where.rpartition(":")[2])


# --- HTTP -------------------------------------------------------------------------------------


class Answer:
    """All of an HTTP answer."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "")


async def ask(
    base: str,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request to ``base``, as it is: nothing is quoted; a body that is no text becomes JSON."""
    address = urlsplit(base)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    data = text.encode("utf-8", "surrogateescape")
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(data)}", "", ""]
    writer.write("\r\n".join(lines).encode() + data)
    try:
        return Answer(await reader.read())
    finally:
        writer.close()


@asynccontextmanager
async def serving_api(**options: Any) -> AsyncIterator[tuple[ProxyService, str]]:
    """A service and the URL of its API."""
    metrics = options.pop("metrics", False)
    async with (
        ProxyService(**options) as service,
        Api(service, metrics=metrics) as api,
    ):
        yield service, api.endpoint
