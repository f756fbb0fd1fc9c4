"""Sends an answer as it is, with a bit that is wrong, or not to its end."""

from __future__ import annotations

import logging
import re
import socket
import struct
from typing import NoReturn

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from chaosspot import store_misbehaviour as m
from chaosspot.services.listener import for_ever
from chaosspot.services.s3.exchange import Exchange
from chaosspot.services.s3.misbehaving import Strike
from chaosspot.services.s3.upstream import NoAnswerError, pieces_of

__all__ = ["lose", "send"]

_log = logging.getLogger(__name__)

_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset
_RANGE = re.compile(r"bytes (\d+)-\d+/")


async def send(
    exchange: Exchange, source: aiohttp.ClientResponse, headers: CIMultiDict[str]
) -> web.StreamResponse:
    """Send the body of ``source`` as it comes, under these headers."""
    response = web.StreamResponse(status=source.status, headers=headers)
    length = int(source.headers.get("Content-Length", "0"))
    bends = exchange.asked.method != "HEAD" and source.status < 300
    cut = exchange.plan.truncated if bends else None
    flip = exchange.plan.flip if bends else None
    keep = _kept(cut, length)
    at, mask = _flipped(flip, headers.get("Content-Range", ""), length)
    await response.prepare(exchange.received)
    sent = 0
    try:
        async for piece in pieces_of(source):
            if flip is not None and sent <= at < sent + len(piece):
                changed = bytearray(piece)
                changed[at - sent] ^= mask
                piece = bytes(changed)
                exchange.made(flip, byte_of_body=at, bit=mask.bit_length() - 1)
            if cut is not None and sent + len(piece) > keep:
                await response.write(piece[: keep - sent])
                exchange.made(cut, sent_bytes=keep, of_bytes=length)
                await drop(exchange.received, reset=_resets(cut))
            await response.write(piece)
            sent += len(piece)
    except NoAnswerError as error:  # the head is out: no error can be told any more
        _log.warning("%s", error)
        await drop(exchange.received, reset=True)
    await response.write_eof()
    return response


async def lose(exchange: Exchange, strike: Strike) -> NoReturn:
    """End the connection without an answer."""
    await drop(exchange.received, reset=_resets(strike))


async def drop(received: web.BaseRequest, *, reset: bool) -> NoReturn:
    """End the connection after what has been sent; ends by being cancelled with it."""
    transport = received.transport
    if transport is not None and reset:
        peer: socket.socket = transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    elif transport is not None:
        transport.close()
    await for_ever()
    raise AssertionError("for ever is over")


def _resets(strike: Strike) -> bool:
    return isinstance(strike.what, m.Truncated | m.LostReply) and strike.what.ending == "reset"


def _kept(strike: Strike | None, length: int) -> int:
    """How many bytes of the body are sent."""
    if strike is None or not isinstance(strike.what, m.Truncated):
        return length
    return int(length * strike.what.keep)


def _flipped(strike: Strike | None, content_range: str, length: int) -> tuple[int, int]:
    """Which byte of the body changes, -1 for none, and the mask of its bit."""
    if strike is None or not isinstance(strike.what, m.BitFlip):
        return -1, 0
    bit = int(strike.share * length * 8)
    at = bit // 8
    if strike.what.at_byte is not None:
        found = _RANGE.match(content_range)
        at = strike.what.at_byte - (int(found[1]) if found else 0)
    return (at if 0 <= at < length else -1), 1 << bit % 8
