"""corrupt: of every ``every`` bytes one bit is wrong, at a place that the seed decides.

Which one depends on the place in the stream alone, not on how it comes in chunks. TCP's checksums
find nothing: the bytes are wrong before they are sent.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    TAKE,
    Attributes,
    Chunk,
    Flow,
    Kind,
    Pipe,
    ending_of,
    within,
)

__all__ = ["KIND", "Corrupt"]


class Corrupt(Attributes, frozen=True, kw_only=True):
    """Bytes."""

    every: int = 0

    def __post_init__(self) -> None:
        within(16, INT_MAX, every=self.every)


def _pipe(a: Corrupt, flow: Flow) -> Pipe:
    while isinstance(told := (yield TAKE), Chunk):
        first = flow.passed_bytes
        flow.passed_bytes += len(told.data)
        data = bytearray(told.data)
        for block in range(first // a.every, (flow.passed_bytes - 1) // a.every + 1):
            bit = int(flow.draw("bit", block) * 8 * a.every)
            place = block * a.every + bit // 8 - first
            if 0 <= place < len(data):
                data[place] ^= 1 << bit % 8
        yield Chunk(data=bytes(data), since_s=told.since_s)
    return ending_of(told)


KIND = Kind(name="corrupt", attributes=Corrupt, pipe=_pipe, own=True)
