"""slicer: chunks are cut into pieces of ``average_size`` bytes or less, each ``delay`` us apart.

A chunk is halved until no piece is longer than average and variation together; each cut lies up to
``size_variation`` beside the middle. So pieces are between half the average and the average.
"""

from __future__ import annotations

from collections.abc import Callable

from chaosspot.services.proxy.toxics.pipe import (
    INT_MAX,
    TAKE,
    US_MAX,
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

__all__ = ["KIND", "Slicer", "cuts"]


class Slicer(Attributes, frozen=True, kw_only=True):
    """Bytes, bytes, and microseconds, of which what is not above 0 is none."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    def __post_init__(self) -> None:
        within(1, INT_MAX, average_size=self.average_size)
        within(0, self.average_size, size_variation=self.size_variation)
        within(-INT_MAX - 1, US_MAX, delay=self.delay)


def cuts(length: int, a: Slicer, draw: Callable[[], float]) -> list[int]:
    """Where the pieces of so many bytes end; ``draw`` gives numbers in [0, 1)."""
    ends: list[int] = []
    todo = [(0, length)]
    while todo:
        start, end = todo.pop()
        size = end - start
        if size <= max(a.average_size + a.size_variation, 1):
            if size:
                ends.append(end)
            continue
        shift = int(draw() * 2 * a.size_variation) - a.size_variation
        middle = start + size // 2 + shift
        todo += [(middle, end), (start, middle)]
    return ends


def _pipe(a: Slicer, flow: Flow) -> Pipe:
    while isinstance(told := (yield TAKE), Chunk):
        start = 0
        for end in cuts(len(told.data), a, flow.next):
            yield Chunk(data=told.data[start:end], since_s=told.since_s)
            start = end
            if a.delay <= 0:
                continue
            if (yield Wait(until_s=flow.now() + a.delay / 1e6)) is not Event.DUE:
                if start < len(told.data):
                    yield Chunk(data=told.data[start:], since_s=told.since_s)
                return Ending.ON
    return ending_of(told)


KIND = Kind(name="slicer", attributes=Slicer, pipe=_pipe)
