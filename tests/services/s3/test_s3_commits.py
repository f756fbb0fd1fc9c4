"""When a change is told to have come: not later than anybody may have seen it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from chaosspot.services.s3 import ObjectStored
from chaosspot.services.s3.asked import read
from chaosspot.services.s3.body import Body
from chaosspot.services.s3.commits import Commits
from chaosspot.services.s3.reader import Reader
from chaosspot.services.s3.upstream import Upstream

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class LateAnswer:
    """A store that has the object, for everybody to see, long before it answers."""

    seen_t = 0.0

    @asynccontextmanager
    async def send(
        self, *_: object, body: AsyncIterator[bytes], **__: object
    ) -> AsyncIterator[Any]:
        async for _piece in body:
            pass
        self.seen_t = time.monotonic()
        await anyio.sleep(0.05)  # what an answer takes

        async def nothing() -> AsyncIterator[bytes]:
            for piece in ():
                yield piece

        headers = CIMultiDictProxy(CIMultiDict[str]())
        yield SimpleNamespace(
            status=200, headers=headers, content=SimpleNamespace(iter_any=nothing)
        )


async def test_an_object_is_there_when_the_store_has_all_of_it() -> None:
    changes: list[Any] = []
    store = LateAnswer()
    body = Body()
    body.write(bytes(1 << 20))
    began_t = time.monotonic()
    reader = cast("Reader", SimpleNamespace(bucket="b"))
    async with Commits(cast("Upstream", store), reader, tell=changes.append) as commits:
        await commits.carry_out(read("PUT", "/b/k", {}), node="node-0", headers={}, body=body)
    (change,) = changes
    assert isinstance(change, ObjectStored)
    assert (change.key, change.size_bytes) == ("k", 1 << 20)
    assert began_t <= change.t <= store.seen_t
