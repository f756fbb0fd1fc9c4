"""What answers a node that asks for a name nobody has: "no such name", at once.

Docker's own resolver knows the names of the run and passes all else on. It passes on failures of
those it asks as silence, and a peer that is gone has no name any more: whoever looks for it would
wait for 20 s.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

__all__ = ["Resolver"]

_HEAD_BYTES = 12
_NO_SUCH_NAME = 3


class Resolver(asyncio.DatagramProtocol):
    """Answers every question of the domain name system (RFC 1035) with "no such name"."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # asyncio's is no subclass

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if (answer := refusal(data)) is not None:
            self._transport.sendto(answer, addr)

    def error_received(self, exc: Exception) -> None:
        """Who asked is gone: nobody misses the answer."""


def refusal(question: bytes) -> bytes | None:
    """The answer; None to what is no question."""
    if len(question) < _HEAD_BYTES or question[2] & 0x80:
        return None
    # A response, authoritative, with the question's own recursion bit; recursion is there.
    flags = bytes((question[2] & 0x79 | 0x84, 0x80 | _NO_SUCH_NAME))
    end = _end_of_name(question)
    if end is None:
        return None
    return question[:2] + flags + b"\0\1" + bytes(6) + question[_HEAD_BYTES : end + 4]


def _end_of_name(question: bytes) -> int | None:
    """Where the first question's name ends, before its type and class."""
    at = _HEAD_BYTES
    while at < len(question) and question[at]:
        at += 1 + question[at]
    return at + 1 if at + 5 <= len(question) else None
