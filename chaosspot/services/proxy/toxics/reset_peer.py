"""reset_peer: ``timeout`` ms after the first chunk or the end, the connection is reset.

Nothing passes. An idle connection is never reset, and one that was open before is closed instead:
for a reset at once of any connection there is, take ``reset_now``.
"""

from __future__ import annotations

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    MS_MAX,
    TAKE,
    Attributes,
    Ending,
    Event,
    Flow,
    Kind,
    Pipe,
    Wait,
    within,
)

__all__ = ["KIND", "ResetPeer"]


class ResetPeer(Attributes, frozen=True, kw_only=True):
    """Milliseconds; what is not above 0 is none."""

    timeout: int = 0

    def __post_init__(self) -> None:
        within(-INT_MAX - 1, MS_MAX, timeout=self.timeout)


def _pipe(a: ResetPeer, flow: Flow) -> Pipe:
    if (yield TAKE) is Event.INTERRUPTED:
        return Ending.ON
    yield Wait(until_s=flow.now() + a.timeout / 1e3)
    return Ending.CLOSE  # also when interrupted: the stream has a hole


KIND = Kind(name="reset_peer", attributes=ResetPeer, pipe=_pipe, resets=True)
