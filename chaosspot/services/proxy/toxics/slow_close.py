"""slow_close: the end of the stream goes on ``delay`` ms late; its removal lets it go at once."""

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
    within,
)

__all__ = ["KIND", "SlowClose"]


class SlowClose(Attributes, frozen=True, kw_only=True):
    """Milliseconds; what is not above 0 is none."""

    delay: int = 0

    def __post_init__(self) -> None:
        within(-INT_MAX - 1, MS_MAX, delay=self.delay)


def _pipe(a: SlowClose, flow: Flow) -> Pipe:
    while isinstance(told := (yield TAKE), Chunk):
        yield told
    if told is Event.INTERRUPTED:
        return Ending.ON
    yield Wait(until_s=flow.now() + a.delay / 1e3)
    return Ending.CLOSE


KIND = Kind(name="slow_close", attributes=SlowClose, pipe=_pipe)
