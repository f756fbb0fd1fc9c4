"""reset_now: ``timeout`` ms after it came, the connection is reset, whatever is sent or not.

On connections that are opened later, so long after they were opened. Until then all data passes.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import (
    MS_MAX,
    Attributes,
    Chunk,
    Ending,
    Event,
    Flow,
    Give,
    Kind,
    Pipe,
    Take,
    ending_of,
    within,
)

__all__ = ["KIND", "ResetNow"]


class ResetNow(Attributes, frozen=True, kw_only=True):
    """Milliseconds."""

    timeout: int = 0

    def __post_init__(self) -> None:
        within(0, MS_MAX, timeout=self.timeout)


def _pipe(a: ResetNow, flow: Flow) -> Pipe:
    due_s = flow.now() + a.timeout / 1e3
    told = yield Take(until_s=due_s)
    while isinstance(told, Chunk) and flow.now() < due_s:
        if (yield Give(chunk=told, until_s=due_s)) is Event.DUE:  # a stalled reader is no excuse
            return Ending.RESET
        told = yield Take(until_s=due_s)
    return Ending.RESET if isinstance(told, Chunk) or told is Event.DUE else ending_of(told)


KIND = Kind(name="reset_now", attributes=ResetNow, pipe=_pipe, own=True)
