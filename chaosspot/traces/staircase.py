"""A count whenever it changes: ``time,count`` lines, or with dates."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import numpy as np

from chaosspot.traces.trace import Array, Counts, TraceError, whole

__all__ = ["read", "read_dated"]

Point = tuple[float, int]


def read(text: str, name: str, unit_s: float) -> tuple[Array, Counts, float]:
    """Times, counts and the end. Each step is two lines with one time: the later one holds.

    Raises:
        TraceError: a line is no pair, times go back, or there is one point only.
    """
    points: list[Point] = []
    for number, line in _lines(text):
        try:
            time, count = line.split(",")
            points.append((float(time) * unit_s, _whole(count)))
        except ValueError as error:
            raise TraceError(f"{name}:{number}: {line!r} is no time,count") from error
        if len(points) > 1 and points[-1][0] < points[-2][0]:
            raise TraceError(f"{name}:{number}: the time {time} goes back")
    return _steps(points, name)


def read_dated(text: str, name: str) -> tuple[Array, Counts, float]:
    """Times, counts and the end. Lines are sorted: public logs step back in time.

    Raises:
        TraceError: a line is not date, time and count, or there is one point only.
    """
    points: list[Point] = []
    for number, line in _lines(text):
        try:
            day, clock, count = (part.strip() for part in line.split(","))
            moment = datetime.fromisoformat(f"{day}T{clock}+00:00")
            points.append((moment.timestamp(), _whole(count)))
        except ValueError as error:
            raise TraceError(f"{name}:{number}: {line!r} is no date, time, count") from error
    return _steps(sorted(points, key=lambda point: point[0]), name)


def _lines(text: str) -> Iterable[tuple[int, str]]:
    return ((n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())


def _whole(text: str) -> int:
    value = float(text)
    if not value.is_integer():
        raise ValueError(text)
    return int(value)


def _steps(points: list[Point], name: str) -> tuple[Array, Counts, float]:
    last = dict(points)  # of several at one time, the last
    if len(last) < 2:
        raise TraceError(f"{name}: has one point in time only: nothing was observed")
    times_s = np.array(list(last), dtype=np.float64)
    found = whole(list(last.values()), name)
    end_s = float(times_s[-1] - times_s[0])
    return times_s - times_s[0], found, end_s
