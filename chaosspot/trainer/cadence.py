"""How often to snapshot, as pure functions of seconds: standard library alone.

A snapshot stops training for ``stall_s``, coming back from an interruption takes ``restart_s``, and
interruptions of the whole job come ``mtbi_s`` apart on average, with exponential gaps. An interval
is the useful time between the end of one snapshot and the start of the next.
"""

from __future__ import annotations

import math

__all__ = [
    "daly_s",
    "expected_lost_s",
    "first_order_factor",
    "optimum_s",
    "time_factor",
    "young_s",
]

_SERIES_BELOW = 1e-6  # of stall / mtbi; there Daly's series is exact to a part in a billion
_NEVER_ABOVE = 36.0  # of stall / mtbi; there the optimum and mtbi are one floating-point number


def young_s(*, stall_s: float, mtbi_s: float) -> float:
    """Young's interval in seconds, sqrt(2 d M) (Young 1974): right when stalls are short.

    Raises:
        ValueError: ``stall_s`` is negative or ``mtbi_s`` not positive.
    """
    _check(stall_s=stall_s, mtbi_s=mtbi_s)
    return math.sqrt(2 * stall_s * mtbi_s) if stall_s else 0.0


def daly_s(*, stall_s: float, mtbi_s: float) -> float:
    """Daly's interval in seconds (Daly 2006, Future Generation Computer Systems 22).

    sqrt(2dM) [1 + sqrt(d/2M)/3 + (d/2M)/9] - d for d < 2M, else M.

    Raises:
        ValueError: ``stall_s`` is negative or ``mtbi_s`` not positive.
    """
    _check(stall_s=stall_s, mtbi_s=mtbi_s)
    if stall_s >= 2 * mtbi_s:
        return mtbi_s
    half = stall_s / (2 * mtbi_s)
    young = young_s(stall_s=stall_s, mtbi_s=mtbi_s)
    return young if math.isinf(young) else young * (1 + math.sqrt(half) / 3 + half / 9) - stall_s


def optimum_s(*, stall_s: float, mtbi_s: float) -> float:
    """The interval in seconds with the least :func:`time_factor`.

    It solves (1 - t/M) e^(t/M + d/M) = 1, that is t = M (1 + W0(-e^(-1-d/M))). 0 when a snapshot
    costs nothing, and never more than ``mtbi_s``.

    Raises:
        ValueError: ``stall_s`` is negative or ``mtbi_s`` not positive.
    """
    _check(stall_s=stall_s, mtbi_s=mtbi_s)
    x = stall_s / mtbi_s
    if x < _SERIES_BELOW:
        return daly_s(stall_s=stall_s, mtbi_s=mtbi_s)
    if x > _NEVER_ABOVE:
        return mtbi_s
    # x + u + log(1 - u) falls and is concave: from the right of its zero, Newton never overshoots.
    u = min(math.sqrt(2 * x), -math.expm1(-1 - x))
    for _ in range(100):
        better = u + (x + u + math.log1p(-u)) * (1 - u) / u
        if not better < u:
            break
        u = better
    return mtbi_s * u


def time_factor(*, interval_s: float, stall_s: float, restart_s: float, mtbi_s: float) -> float:
    """Expected time over useful time, at least 1: (M/t) e^(R/M) (e^((t+d)/M) - 1).

    Stalls, work that is lost and done again, and restarts, which may be interrupted too. Daly
    2006, eq. 20, for a job of many intervals. Infinite where no interval is ever finished.

    Raises:
        ValueError: a time is negative, or ``interval_s`` or ``mtbi_s`` not positive.
    """
    _check(stall_s=stall_s, mtbi_s=mtbi_s, restart_s=restart_s, interval_s=interval_s)
    segment_s = interval_s + stall_s
    if math.isinf(mtbi_s):
        return segment_s / interval_s
    try:
        grown = math.exp(restart_s / mtbi_s) * math.expm1(segment_s / mtbi_s)
    except OverflowError:
        return math.inf
    return mtbi_s / interval_s * grown


def first_order_factor(
    *, interval_s: float, stall_s: float, restart_s: float, mtbi_s: float
) -> float:
    """What is often used for :func:`time_factor`: 1 / [(1 - d/(t+d)) (1 - ((t+d)/2 + R)/M)].

    Too high by some per cent when interruptions are frequent, infinite when they are more so.

    Raises:
        ValueError: a time is negative, or ``interval_s`` or ``mtbi_s`` not positive.
    """
    _check(stall_s=stall_s, mtbi_s=mtbi_s, restart_s=restart_s, interval_s=interval_s)
    segment_s = interval_s + stall_s
    left = 1 - (segment_s / 2 + restart_s) / mtbi_s
    return segment_s / (interval_s * left) if left > 0 else math.inf


def expected_lost_s(*, segment_s: float, mtbi_s: float) -> float:
    """How far into a segment it is interrupted, if it is, in seconds: M - s / (e^(s/M) - 1).

    ``segment_s`` is the interval and its stall. Half of it when interruptions are rare, less when
    they are not.

    Raises:
        ValueError: ``segment_s`` is negative or ``mtbi_s`` not positive.
    """
    _check(segment_s=segment_s, mtbi_s=mtbi_s)
    x = segment_s / mtbi_s
    if x < 1e-4:  # the difference of two large numbers would be lost in rounding
        return segment_s * (0.5 - x / 12)
    return mtbi_s - (segment_s / math.expm1(x) if x < 700 else 0.0)


def _check(**values_s: float) -> None:
    for name, value in values_s.items():
        positive = name in ("mtbi_s", "interval_s")
        if math.isnan(value) or value < 0 or (positive and value == 0):
            least = "above 0" if positive else "at least 0"
            raise ValueError(f"{name} = {value!r}: {least}")
        if math.isinf(value) and name != "mtbi_s":
            raise ValueError(f"{name} = {value!r}: must be finite")
