"""bandwidth: at most ``rate`` KB (1000 bytes) a second pass; 0 lets nothing pass.

A chunk that takes longer than 100 ms goes on in pieces, one every 100 ms.
"""

from __future__ import annotations

import math

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    TAKE,
    Attributes,
    Chunk,
    Ending,
    Event,
    Flow,
    Kind,
    Pipe,
    Wait,
    ending_of,
    within,
)

__all__ = ["KIND", "Bandwidth"]


class Bandwidth(Attributes, frozen=True, kw_only=True):
    """KB a second."""

    rate: int = 0

    def __post_init__(self) -> None:
        within(0, INT_MAX // 100, rate=self.rate)


def _pipe(a: Bandwidth, flow: Flow) -> Pipe:
    owed_s = 0.0  # below 0 after a timer that came late: the rate is kept on the average
    while isinstance(told := (yield TAKE), Chunk):
        data, start = told.data, 0
        while start < len(data):
            piece = data[start : start + (a.rate or 1) * 100]
            owed_s += len(piece) / (a.rate * 1e3) if a.rate else math.inf
            due_s = flow.now() + owed_s
            if owed_s > 0 and (yield Wait(until_s=due_s)) is not Event.DUE:
                yield Chunk(data=data[start:], since_s=told.since_s)
                return Ending.ON
            owed_s = due_s - flow.now()
            yield Chunk(data=piece, since_s=told.since_s)
            start += len(piece)
    return ending_of(told)


def _ahead(a: Bandwidth) -> int:
    """Chunks of 32 KiB in a tenth of a second: none is missing when a late timer is made up for."""
    return min(256, 1 + a.rate // 328)


KIND = Kind(name="bandwidth", attributes=Bandwidth, pipe=_pipe, capacity=_ahead)
