"""The object store of one run, and the record of all that happens to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio

from chaosspot import history as h
from chaosspot.conductor.feed import Feed
from chaosspot.services.s3 import (
    Change,
    Injection,
    ObjectGone,
    ObjectStored,
    S3Service,
    UploadChanged,
)
from chaosspot.store_misbehaviour import StoreMisbehaviourKind

__all__ = ["Storage"]

PREFIX = "job/"


class Storage:
    """Made by :meth:`serving`; what the store holds at the end is read when that is left."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._faults: dict[int, int] = {}  # by the number of a misbehaviour
        self._struck: set[tuple[int, str]] = set()  # faults, and the nodes that they hit
        self._service = S3Service(on_injection=self._injected, on_change=self._changed)

    @classmethod
    @asynccontextmanager
    async def serving(cls, feed: Feed) -> AsyncIterator[Storage]:
        """The store, which is empty at first."""
        storage = cls(feed)
        service = await storage._service.__aenter__()
        try:
            yield storage
            await storage._look()
        finally:
            with anyio.CancelScope(shield=True):
                await service.__aexit__(None, None, None)

    @property
    def place(self) -> str:
        """What ``CHAOSSPOT_STORE`` is."""
        return f"s3://{self._service.bucket}/{PREFIX}"

    @property
    def address(self) -> str:
        """HOST:PORT that serves it."""
        return urlsplit(self._service.endpoint).netloc

    def environment(self, node: str, address: str) -> dict[str, str]:
        """What leads that node's clients to ``address``, where the store is reached."""
        return self._service.environment(node, environ={}, endpoint=f"http://{address}")

    def misbehave(self, how: StoreMisbehaviourKind, fault: int) -> int:
        number = self._service.misbehave(how)
        self._faults[number] = fault
        return number

    def behave(self, number: int) -> None:
        if number in {entry.number for entry in self._service.misbehaviours()}:
            self._service.behave(number)

    def _injected(self, injection: Injection) -> None:
        node, t, fault = injection.node, injection.t, self._faults[injection.number]
        if (fault, node) not in self._struck:
            self._struck.add((fault, node))
            self._feed.note(h.FaultEffect, node=node, t=t, fault=fault, what="misbehaved")
        self._feed.note(
            h.StoreMisbehaved,
            node=node,
            t=t,
            fault=fault,
            kind=injection.kind,
            operation=injection.operation,
            key=_within(injection.key),
        )

    def _changed(self, change: Change) -> None:
        key, note = _within(change.key), self._feed.note
        match change:
            case ObjectStored(t=t, node=node):
                size, found = change.size_bytes, change.sha256
                note(h.StorePut, node=node, t=t, key=key, bytes=size, sum=found)
            case ObjectGone(t=t, node=node):
                note(h.StoreDelete, node=node, t=t, key=key)
            case UploadChanged(t=t, node=node):
                upload, state = change.upload, change.state
                note(h.StoreUpload, node=node, t=t, key=key, upload=upload, state=state)

    async def _look(self) -> None:
        """Record what is in the store now, read past all that may misbehave."""
        self._service.check()
        reader = self._service.reader
        sums = {
            _within(each.key): (await reader.sha256(each.key))[1]
            for each in await reader.objects(PREFIX)
        }
        uploads = tuple(each.id for each in await reader.uploads())
        self._feed.note(h.StoreFound, objects=sums, uploads=uploads)


def _within(key: str) -> str:
    return key.removeprefix(PREFIX)
