"""half_close: the end of this direction is passed on as one, and the other direction goes on.

Without it the end of either direction closes both, which is Toxiproxy's way.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import (
    TAKE,
    Attributes,
    Chunk,
    Ending,
    Event,
    Flow,
    Kind,
    Pipe,
)

__all__ = ["KIND"]


def _pipe(a: Attributes, flow: Flow) -> Pipe:
    while isinstance(told := (yield TAKE), Chunk):
        yield told
    return Ending.HALF if told is Event.END else Ending.ON


KIND = Kind(name="half_close", attributes=Attributes, pipe=_pipe, own=True)
