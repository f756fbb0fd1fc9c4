"""limit_data: the stream ends when so many ``bytes`` have passed; 0 ends it at the first chunk.

Bytes count from when the toxic came, and go on counting when it is changed.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    TAKE,
    Attributes,
    Chunk,
    Ending,
    Flow,
    Kind,
    Pipe,
    ending_of,
    within,
)

__all__ = ["KIND", "LimitData"]


class LimitData(Attributes, frozen=True, kw_only=True):
    """Bytes of each connection; below 0 is 0."""

    bytes: int = 0

    def __post_init__(self) -> None:
        within(-INT_MAX - 1, INT_MAX, bytes=self.bytes)


def _pipe(a: LimitData, flow: Flow) -> Pipe:
    while isinstance(told := (yield TAKE), Chunk):
        data = told.data[: max(0, a.bytes - flow.passed_bytes)]
        flow.passed_bytes += len(data)
        if data:
            yield Chunk(data=data, since_s=told.since_s)
        if flow.passed_bytes >= a.bytes:
            return Ending.CLOSE
    return ending_of(told)


KIND = Kind(name="limit_data", attributes=LimitData, pipe=_pipe)
