"""Requests to moto itself, which knows no misbehaviour: one connection each, as it closes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

__all__ = ["NoAnswerError", "Upstream", "pieces_of"]

_ANSWERED_WITHIN_S = 600.0  # moto copies what it is given, and a machine may be slow


class NoAnswerError(OSError):
    """moto did not answer, or not to the end of its answer."""


class Upstream:
    """Use it with ``async with``; no proxy, cookie or setting of the environment is heeded."""

    def __init__(self, endpoint: str, *, region: str) -> None:
        self._endpoint = endpoint
        # moto verifies no signature, but reads the region here, and hides objects from who has none
        self._signed = (
            f"AWS4-HMAC-SHA256 Credential=chaosspot/20200101/{region}/s3/aws4_request, "
            "SignedHeaders=host, Signature=0"
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=1 << 18,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=_ANSWERED_WITHIN_S),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: AsyncIterator[bytes] | bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request; ``target`` is sent as it is.

        Raises:
            NoAnswerError: entering.
        """
        assert self._session is not None
        try:
            answer = await self._session.request(
                method,
                URL(self._endpoint + target, encoded=True),
                headers=CIMultiDict(headers),
                data=body,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(method, target, error) from error
        async with answer:
            yield answer

    def ask(
        self, method: str, target: str, *, body: bytes = b"", more: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A request of our own, signed for moto to take it; with ``more`` headers."""
        headers = {"Authorization": self._signed, "Content-Length": str(len(body)), **(more or {})}
        return self.send(method, target, headers=headers, body=body or None)


async def pieces_of(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body, as it comes.

    Raises:
        NoAnswerError: it did not come to its end.
    """
    try:
        async for piece in answer.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _no_answer(answer.method, str(answer.url.raw_path_qs), error) from error


def _no_answer(method: str, target: str, error: Exception) -> NoAnswerError:
    return NoAnswerError(f"the object store (moto) did not answer {method} {target}: {error!r}")
