"""latency: every chunk leaves ``latency`` ms after it came, give or take up to ``jitter`` ms.

Chunks keep their order, and their delays do not add up. Neither a connection nor its end is
delayed by itself.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    MS_MAX,
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

__all__ = ["KIND", "Latency"]


class Latency(Attributes, frozen=True, kw_only=True):
    """Milliseconds; what is not above 0 is none."""

    latency: int = 0
    jitter: int = 0

    def __post_init__(self) -> None:
        within(-INT_MAX - 1, MS_MAX, latency=self.latency, jitter=self.jitter)


def _pipe(a: Latency, flow: Flow) -> Pipe:
    left_s = 0.0
    while isinstance(told := (yield TAKE), Chunk):
        delay_ms = float(a.latency)
        if a.jitter > 0:
            delay_ms += (2 * flow.next() - 1) * a.jitter
        left_s = max(left_s, told.since_s + max(0.0, delay_ms) / 1e3)
        if left_s > flow.now() and (yield Wait(until_s=left_s)) is not Event.DUE:
            yield told
            return Ending.ON
        yield Chunk(data=told.data, since_s=left_s)
    return ending_of(told)


KIND = Kind(name="latency", attributes=Latency, pipe=_pipe, capacity=lambda a: 1024)
