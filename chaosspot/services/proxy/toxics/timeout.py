"""timeout: nothing passes, and after ``timeout`` ms in which nothing came (0: never) it ends.

Whoever sends keeps it open: a byte every 200 ms keeps a timeout of 400 ms from ever coming. For an
end at a fixed time, whatever is sent, take ``reset_now``.
"""

from __future__ import annotations

import math

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    MS_MAX,
    Attributes,
    Chunk,
    Flow,
    Kind,
    Pipe,
    Take,
    ending_of,
    within,
)

__all__ = ["KIND", "Timeout"]


class Timeout(Attributes, frozen=True, kw_only=True):
    """Milliseconds; what is not above 0 never comes."""

    timeout: int = 0

    def __post_init__(self) -> None:
        within(-INT_MAX - 1, MS_MAX, timeout=self.timeout)


def _pipe(a: Timeout, flow: Flow) -> Pipe:
    patience_s = a.timeout / 1e3 if a.timeout > 0 else math.inf
    while isinstance(told := (yield Take(until_s=flow.now() + patience_s)), Chunk):
        pass
    return ending_of(told)


KIND = Kind(name="timeout", attributes=Timeout, pipe=_pipe, closes_when_removed=True)
