"""Answers clients of S3: misbehaves as it is told, verifies what moto does not, passes on the rest.

One request: read what is asked, decide what strikes it, take in and verify its body, let moto do
it, and send the answer, bent if it is to be.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import TypeAlias
from urllib.parse import quote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from chaosspot import store_misbehaviour as m
from chaosspot.services.s3.asked import Asked
from chaosspot.services.s3.body import Body, receive
from chaosspot.services.s3.commits import Commits, Done
from chaosspot.services.s3.composite import completed, with_parts
from chaosspot.services.s3.errors import BY_STATUS, Refused, document
from chaosspot.services.s3.exchange import Exchange
from chaosspot.services.s3.misbehaving import Strike
from chaosspot.services.s3.sending import lose, send
from chaosspot.services.s3.sums import PREFIX, plausible
from chaosspot.services.s3.upstream import NoAnswerError, Upstream

__all__ = ["Layer"]

_log = logging.getLogger(__name__)

_HOP_BY_HOP = frozenset({
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OF_FRAMING = frozenset({
    "content-encoding", "x-amz-content-sha256", "x-amz-decoded-content-length", "x-amz-trailer",
})  # fmt: skip
_NOT_TOLD = frozenset({  # what moto tells and S3 does not, or we tell ourselves
    "connection", "date", "server", "transfer-encoding", "x-amz-content-sha256",
    "x-amz-sdk-checksum-algorithm", "x-amzn-requestid",
})  # fmt: skip
_READS = ("get", "head", "list")
_OBJECTS = ("put", "multipart-part")
_NOT_OF_BODY = ("multipart-create", "multipart-complete")  # their checksums are the object's
_SKEW_ALLOWED_MS = 900_000

_Answered: TypeAlias = aiohttp.ClientResponse | Done


class Layer:
    """``exchange`` is called once a request, in the order they come; ``wall`` is the time told."""

    def __init__(
        self,
        upstream: Upstream,
        commits: Commits,
        *,
        exchange: Callable[[web.BaseRequest], Exchange],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._upstream = upstream
        self._commits = commits
        self._exchange = exchange
        self._wall = wall

    async def answer(self, received: web.BaseRequest) -> web.StreamResponse:
        """The handler of a listener."""
        exchange = self._exchange(received)
        if exchange.plan.refusal is not None:
            return await self._refuse(exchange, exchange.plan.refusal)
        try:
            return await self._pass_on(exchange)
        except Refused as error:
            refused = error
        except NoAnswerError as error:
            _log.warning("%s", error)
            refused = Refused("InternalError")
        await self._delay(exchange)
        return self._say(exchange, refused)

    async def _refuse(self, exchange: Exchange, strike: Strike) -> web.StreamResponse:
        asked, wall_s = exchange.asked, self._wall()
        match strike.what:
            case m.SlowDown():
                refused = Refused("SlowDown")
            case m.Failure(status=status):
                refused = Refused("InternalError" if status == 500 else "ServiceUnavailable")
            case m.ExpiredToken():
                refused = Refused("ExpiredToken")
            case m.TimeTooSkewed(skew_s=skew_s):
                wall_s += skew_s
                server = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))
                allowed = str(_SKEW_ALLOWED_MS)
                more = {"ServerTime": server, "MaxAllowedSkewMilliseconds": allowed}
                refused = Refused("RequestTimeTooSkewed", more=more)
            case m.NoSuchUpload():
                refused = _no_such_upload(asked)
                await self._commits.abort(asked, _upload_target(asked), node=exchange.node)
            case _:
                refused = Refused("AccessDenied")
        exchange.made(strike, code=refused.code)
        return self._say(exchange, refused, wall_s=wall_s)

    async def _pass_on(self, exchange: Exchange) -> web.StreamResponse:
        asked, lost = exchange.asked, exchange.plan.lost
        body = await receive(
            exchange.received,
            is_object=asked.operation in _OBJECTS,
            of_body=asked.operation not in _NOT_OF_BODY,
        )
        headers = _onwards(exchange.received.headers, body)
        if asked.operation in _READS:
            body.close()
            return await self._read(exchange, headers)
        done = await self._commits.carry_out(asked, node=exchange.node, headers=headers, body=body)
        await self._must_be_of_s3(asked, done)
        if lost is not None and done.status < 300:
            exchange.made(lost, status=done.status)
            await lose(exchange, lost)
        await self._delay(exchange)
        told, page = self._told(exchange, done), done.body
        if asked.operation == "multipart-complete" and done.status < 300:
            page = await self._completed(asked, page)
            told["Content-Length"] = str(len(page))
        return web.Response(status=done.status, headers=told, body=page or None)

    async def _completed(self, asked: Asked, page: bytes) -> bytes:
        path = asked.target.partition("?")[0]
        async with self._upstream.ask("HEAD", path, more={PREFIX + "mode": "ENABLED"}) as found:
            headers = CIMultiDict(found.headers)
        with_parts(headers)
        return completed(page, headers)

    async def _read(self, exchange: Exchange, headers: CIMultiDict[str]) -> web.StreamResponse:
        asked = exchange.asked
        async with self._upstream.send(asked.method, asked.target, headers=headers) as done:
            await self._must_be_of_s3(asked, done)
            await self._delay(exchange)
            return await send(exchange, done, self._told(exchange, done))

    async def _must_be_of_s3(self, asked: Asked, done: _Answered) -> None:
        """Raise what S3 says where moto has no words of its own, or only those of its framework."""
        of_s3 = "xml" in done.headers.get("Content-Type", "")
        empty = done.headers.get("Content-Length") == "0"
        if done.status < 400 or asked.method == "HEAD" or (of_s3 and not empty):
            return
        if done.status < 500:
            raise Refused(BY_STATUS.get(done.status, "InvalidRequest"))
        if asked.upload_id:
            async with self._upstream.ask("GET", _upload_target(asked) + "&max-parts=1") as parts:
                if parts.status == 404:
                    raise _no_such_upload(asked)
        _log.warning("%s: moto failed with %d", asked.target, done.status)
        raise Refused("InternalError")

    async def _delay(self, exchange: Exchange) -> None:
        for strike in exchange.plan.delays:
            if isinstance(strike.what, m.SlowFirstByte):
                delay_s = strike.what.delay_s + strike.what.jitter_s * strike.share
                exchange.made(strike, delay_s=round(delay_s, 6))
                await asyncio.sleep(delay_s)

    def _told(self, exchange: Exchange, done: _Answered) -> CIMultiDict[str]:
        """The headers that the client gets."""
        told: CIMultiDict[str] = CIMultiDict()
        for name, value in done.headers.items():
            if name.lower() not in _NOT_TOLD and plausible(name, value):
                told.add(name, value)
        with_parts(told)
        told.update(exchange.headers)
        told["Date"] = formatdate(self._wall(), usegmt=True)
        return told

    def _say(
        self, exchange: Exchange, refused: Refused, *, wall_s: float | None = None
    ) -> web.StreamResponse:
        headers = exchange.headers
        headers["Date"] = formatdate(self._wall() if wall_s is None else wall_s, usegmt=True)
        headers["Content-Type"] = "application/xml"
        if not exchange.received.content.is_eof():
            headers["Connection"] = "close"  # the rest of its body is not wanted
        page = document(
            refused,
            resource=exchange.asked.resource,
            request_id=exchange.request_id,
            host_id=exchange.host_id,
        )
        body = None if exchange.asked.method == "HEAD" else page
        return web.Response(status=refused.status, headers=headers, body=body)


def _onwards(headers: CIMultiDictProxy[str], body: Body) -> CIMultiDict[str]:
    """The headers for moto: of the object, without those of how it came here."""
    found: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        framing = body.framed and name.lower() in _OF_FRAMING
        if name.lower() not in _HOP_BY_HOP and not framing:
            found.add(name, value)
    if body.framed:
        found["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
        if body.encodings:
            found["Content-Encoding"] = body.encodings
    if body.algorithm:
        found[PREFIX + body.algorithm] = body.value
        found["x-amz-sdk-checksum-algorithm"] = body.algorithm.upper()
    found["Content-Length"] = str(body.size_bytes)
    return found


def _no_such_upload(asked: Asked) -> Refused:
    return Refused("NoSuchUpload", more={"UploadId": asked.upload_id})


def _upload_target(asked: Asked) -> str:
    path = asked.target.partition("?")[0]
    return f"{path}?uploadId={quote(asked.upload_id, safe='')}"
