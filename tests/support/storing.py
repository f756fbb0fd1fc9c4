"""An object store on a thread of its own, its clients, and requests that see every byte."""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from chaosspot import store_misbehaviour as m
from chaosspot.services.s3 import Change, Injection, S3Service

T = TypeVar("T")

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=nobody/20200101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
WITHIN_S = 60.0


class Store:
    """The service, for tests that are not coroutines."""

    def __init__(self, service: S3Service, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.injections: list[Injection] = []
        self.changes: list[Change] = []
        self._loop = loop

    @property
    def bucket(self) -> str:
        return self.service.bucket

    def call(self, act: Callable[[], T]) -> T:
        """Do something on the service's loop."""

        async def do() -> T:
            return act()

        return self.run(do())

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(WITHIN_S)

    def misbehave(self, what: m.StoreMisbehaviourKind) -> int:
        return self.call(lambda: self.service.misbehave(what))

    def client(self, node: str = "", **config: Any) -> Any:
        """boto3's client, as a child gets it by its environment; it tries once unless told."""
        told = self.call(lambda: self.service.environment(node, environ={}))
        config.setdefault("retries", {"total_max_attempts": 1})
        return boto3.client(
            "s3",
            endpoint_url=told["AWS_ENDPOINT_URL_S3"],
            aws_access_key_id=told["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
            region_name=told["AWS_REGION"],
            config=Config(proxies={}, **config),
        )

    def read(self, key: str) -> bytes:
        """What the store really holds."""
        return self.run(self.service.reader.read(key))

    def keys(self) -> list[str]:
        return [each.key for each in self.run(self.service.reader.objects())]

    def uploads(self) -> list[str]:
        return [each.id for each in self.run(self.service.reader.uploads())]

    def made(self) -> list[str]:
        """The kinds of the misbehaviours that were made."""
        return [injection.kind for injection in self.injections]

    def forget(self, client: Any) -> None:
        """Empty, and well-behaved."""
        for entry in self.call(self.service.misbehaviours):
            self.call(lambda number=entry.number: self.service.behave(number))  # type: ignore[misc]
        for upload in self.run(self.service.reader.uploads()):
            client.abort_multipart_upload(Bucket=self.bucket, Key=upload.key, UploadId=upload.id)
        for key in self.keys():
            client.delete_object(Bucket=self.bucket, Key=key)
        self.injections.clear()
        self.changes.clear()


@contextmanager
def storing(**options: Any) -> Iterator[Store]:
    """A store that serves while the block runs."""
    started: concurrent.futures.Future[tuple[Store, asyncio.Event]] = concurrent.futures.Future()

    async def main() -> None:
        stop = asyncio.Event()
        try:
            heard: dict[str, list[Any]] = {"injections": [], "changes": []}
            async with S3Service(
                on_injection=heard["injections"].append,
                on_change=heard["changes"].append,
                **options,
            ) as service:
                store = Store(service, asyncio.get_running_loop())
                store.injections, store.changes = heard["injections"], heard["changes"]
                started.set_result((store, stop))
                await stop.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        store, stop = started.result(WITHIN_S)
        try:
            yield store
        finally:
            store.call(stop.set)
    finally:
        thread.join(WITHIN_S)
    assert not thread.is_alive()


def code_of(error: ClientError) -> tuple[int, str]:
    """The status and the code of S3's."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]


def head(method: str, target: str, headers: Mapping[str, object]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    told: dict[str, object] = {"Host": "127.0.0.1", "Authorization": SIGNED, **headers}
    lines += [f"{name}: {value}" for name, value in told.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode()


class Connection:
    """One connection to the layer; everything that is received is seen."""

    def __init__(self, store: Store) -> None:
        address = urlsplit(store.service.endpoint)
        self._socket = socket.create_connection((address.hostname, address.port), WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._got = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, method: str, target: str, body: bytes = b"", **headers: object) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            given.setdefault("Content-Length", len(body))
        self.send(head(method, target, given) + body)
        return self.answer(has_body=method != "HEAD")

    def interim(self) -> bytes:
        """The next head."""
        while b"\r\n\r\n" not in self._got:
            if not self._more():
                raise EOFError(self._got)
        page, _, self._got = self._got.partition(b"\r\n\r\n")
        return page

    def answer(self, *, has_body: bool = True) -> Answer:
        status, *lines = self.interim().decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", "0")) if has_body else 0
        while len(self._got) < length and self._more():
            pass
        body, self._got = self._got[:length], self._got[length:]
        return Answer(int(status.split()[1]), headers, body)

    def rest(self) -> bytes:
        """What comes until the connection ends.

        Raises:
            ConnectionResetError: it ends so.
        """
        while self._more():
            pass
        got, self._got = self._got, b""
        return got

    def received_until_it_breaks(self) -> bytes:
        """What came before the connection was reset."""
        with suppress(ConnectionResetError):
            while self._more():
                pass
            raise AssertionError("it came to an orderly end")
        return self._got

    def _more(self) -> bool:
        data = self._socket.recv(1 << 16)
        self._got += data
        return bool(data)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def code(self) -> str:
        """Of the error document."""
        found = self.body.partition(b"<Code>")[2].partition(b"</Code>")[0]
        return found.decode()
