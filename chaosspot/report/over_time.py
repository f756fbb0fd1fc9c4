"""A number that changes, as one line for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["bars"]

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60  # characters, each an equal share of the time

Point = Sequence[float]  # seconds, and the number from then on


def bars(points: Sequence[Point], width: int = _WIDTH) -> str:
    """The number in each of ``width`` equal spans, at its lowest there; the last point is the end.

    A bar is as high as the number's share of the largest; none is 0. Empty without a span.
    """
    if len(points) < 2 or not (span_s := points[-1][0] - points[0][0]):
        return ""
    most = max(number for _, number in points) or 1
    drawn = []
    for index in range(width):
        start_s = points[0][0] + span_s * index / width
        end_s = points[0][0] + span_s * (index + 1) / width
        lowest = min(_within(points, start_s, end_s))
        drawn.append(_BARS[math.ceil(lowest * (len(_BARS) - 1) / most)])
    return "".join(drawn)


def _within(points: Sequence[Point], start_s: float, end_s: float) -> list[float]:
    """The number at the start of a span, and those it changes to before its end."""
    before = [number for t_s, number in points if t_s <= start_s][-1]
    return [before, *(number for t_s, number in points if start_s < t_s < end_s)]
