"""Carries out what changes the store: to its end, also when the client has left, and on record.

As with S3, what has come in whole is done, whether or not anybody waits for the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext
from types import TracebackType
from typing import Literal, Self
from weakref import WeakValueDictionary

import msgspec
from multidict import CIMultiDictProxy

from chaosspot.services.s3.asked import Asked
from chaosspot.services.s3.body import Body
from chaosspot.services.s3.changes import (
    Change,
    ObjectGone,
    ObjectStored,
    UploadChanged,
    deleted_keys,
    upload_id,
)
from chaosspot.services.s3.reader import Reader
from chaosspot.services.s3.upstream import Upstream, pieces_of

__all__ = ["Commits", "Done"]

_OF_ONE_OBJECT = ("put", "copy", "delete", "multipart-complete")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """moto's answer."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes


class _Handed:
    """What moto is given, and when (monotonic seconds) it had all of that: from then on others may
    see what it makes of it, which is before it answers."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.t = time.monotonic()

    def pieces(self) -> AsyncIterator[bytes] | None:
        return self._pieces() if self._body.size_bytes else None

    async def _pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._body.pieces():
            self.t = time.monotonic()
            yield piece


class Commits:
    """Use it with ``async with``; leaving it gives up what is still being done.

    ``tell`` hears of every change of the reader's bucket before the client that made it does;
    those of one key come in their order.
    """

    def __init__(
        self, upstream: Upstream, reader: Reader, *, tell: Callable[[Change], None]
    ) -> None:
        self._upstream = upstream
        self._reader = reader
        self._tell = tell
        self._tasks: set[asyncio.Task[Done]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def carry_out(
        self, asked: Asked, *, node: str, headers: Mapping[str, str], body: Body
    ) -> Done:
        """Let moto do it; closes the body. Being cancelled does not stop it.

        Raises:
            NoAnswerError: moto did not answer.
        """
        task = asyncio.create_task(self._carry_out(asked, node, headers, body))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def abort(self, asked: Asked, target: str, *, node: str) -> None:
        """Abort the upload that is asked about, if there is one."""
        async with self._upstream.ask("DELETE", target) as answer:
            if answer.status == 204:
                self._tell_upload(asked, node, asked.upload_id, "aborted")

    def _ended(self, task: asyncio.Task[Done]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the client may have left: nobody else asks for it

    async def _carry_out(
        self, asked: Asked, node: str, headers: Mapping[str, str], body: Body
    ) -> Done:
        lock: asyncio.Lock | nullcontext[None] = nullcontext()
        if asked.operation in _OF_ONE_OBJECT and asked.key:
            lock = self._locks.setdefault(asked.key, asyncio.Lock())
        try:
            async with lock:
                handed = _Handed(body)
                sending = self._upstream.send(
                    asked.method, asked.target, headers=headers, body=handed.pieces()
                )
                async with sending as answer:
                    told = b"".join([piece async for piece in pieces_of(answer)])
                    done = Done(status=answer.status, headers=answer.headers, body=told)
                if done.status < 300 and asked.bucket == self._reader.bucket:
                    await self._record(asked, node, body, done, handed.t)
                return done
        finally:
            body.close()

    async def _record(
        self, asked: Asked, node: str, body: Body, done: Done, handed_t: float
    ) -> None:
        t = handed_t
        match asked.operation:
            case "put" if asked.key:
                size_bytes, sha256 = body.size_bytes, body.sha256
                self._tell_stored(asked.key, node, t, size_bytes, sha256)
            case "delete" if not asked.key:
                for key in deleted_keys(body.read(), done.body):
                    await self._look(key, node, t)
            case "copy" | "delete":
                await self._look(asked.key, node, t)
            case "multipart-create":
                self._tell_upload(asked, node, upload_id(done.body), "begun")
            case "multipart-complete":
                await self._look(asked.key, node, t)
                self._tell_upload(asked, node, asked.upload_id, "completed")
            case "multipart-abort":
                self._tell_upload(asked, node, asked.upload_id, "aborted")

    async def _look(self, key: str, node: str, t: float) -> None:
        """Tell what is there now: what has just been put together, or an older version, or none."""
        try:
            size_bytes, sha256 = await self._reader.sha256(key)
        except FileNotFoundError:
            self._tell(ObjectGone(t=time.monotonic(), node=node, key=key))
        else:
            self._tell_stored(key, node, t, size_bytes, sha256)

    def _tell_stored(self, key: str, node: str, t: float, size_bytes: int, sha256: str) -> None:
        self._tell(ObjectStored(t=t, node=node, key=key, size_bytes=size_bytes, sha256=sha256))

    def _tell_upload(
        self,
        asked: Asked,
        node: str,
        upload: str,
        state: Literal["begun", "completed", "aborted"],
    ) -> None:
        t = time.monotonic()
        self._tell(UploadChanged(t=t, node=node, key=asked.key, upload=upload, state=state))
