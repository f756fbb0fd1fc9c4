"""How far a ratio of sums can be trusted: its spells are drawn again, with replacement.

Spells are taken to be independent of each other and the future to be like the trace. A trace of
hours or of one zone says less than its interval.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from chaosspot.checked import at_least_1
from chaosspot.traces.trace import Array

__all__ = ["FEW_SPELLS", "Interval", "ratio_interval"]

FEW_SPELLS = 20  # below this an interval of spells is itself uncertain
_CELLS_AT_ONCE = 2_000_000


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, and the bounds between which ``level`` of the drawn ones lie."""

    value: float
    low: float
    high: float
    level: float
    samples: int
    spells: int


def ratio_interval(
    over: Array,
    under: Array,
    rng: np.random.Generator,
    *,
    samples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """The ratio of the sums of ``over`` and ``under``, with its percentile bootstrap interval.

    Args:
        over: by spell.
        under: by spell; where its sum is 0 the ratio is infinite.
        rng: decides the draws.
        samples: how many.
        level: the share of draws within the interval.

    Raises:
        ValueError: there are no spells, ``samples`` is below 1 or ``level`` outside (0, 1).
    """
    at_least_1(samples=samples, spells=len(over))
    if not 0 < level < 1:
        raise ValueError(f"level = {level!r}: above 0 and below 1")
    number = len(over)
    rows = max(1, _CELLS_AT_ONCE // number)
    ratios = np.concatenate(
        [_draw(over, under, rng, min(rows, samples - done)) for done in range(0, samples, rows)]
    )
    edge = (1 - level) / 2
    low, high = np.quantile(ratios, (edge, 1 - edge), method="nearest")
    total = float(under.sum())
    return Interval(
        value=float(over.sum()) / total if total else math.inf,
        low=float(low),
        high=float(high),
        level=level,
        samples=samples,
        spells=number,
    )


def _draw(over: Array, under: Array, rng: np.random.Generator, rows: int) -> Array:
    drawn = rng.integers(len(over), size=(rows, len(over)))
    sums = under[drawn].sum(axis=1)
    ratios = np.full(rows, math.inf)
    np.divide(over[drawn].sum(axis=1), sums, out=ratios, where=sums > 0)
    return ratios
