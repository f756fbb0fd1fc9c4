"""Losses by common shocks (Marshall and Olkin 1967): a shock takes all nodes of a set at once.

Sets nest and overlap: a family in a region, a zone, one pool. Each shock is a Poisson process, so
the rates of shocks that hit the same nodes add, and their probabilities within a tick combine to
1 - (1 - c1)(1 - c2).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from chaosspot.checked import at_least_1, share
from chaosspot.correlation import common_shock
from chaosspot.traces.trace import Array

__all__ = ["CommonShock", "Shock", "fit_common_shock", "lost_under", "shared"]

_MOST_SHARED = 14  # shocks over several cells; all 2 ** 14 outcomes are looked at


class CommonShock(msgspec.Struct, frozen=True, kw_only=True):
    """Losses of one pool within a tick: with probability ``shock`` all nodes go, else each by
    itself with probability ``private``.

    Raises:
        ValueError: one is outside [0, 1].
    """

    shock: float
    private: float

    def __post_init__(self) -> None:
        share(shock=self.shock, private=self.private)

    @property
    def loss(self) -> float:
        """Of one node."""
        return 1 - (1 - self.shock) * (1 - self.private)

    def p_all(self, nodes: int) -> float:
        """c + (1 - c) q^n."""
        return self.shock + (1 - self.shock) * self.private**nodes

    def p_any(self, nodes: int) -> float:
        """1 - (1 - c)(1 - q)^n."""
        return 1 - (1 - self.shock) * (1 - self.private) ** nodes

    def lost(self, nodes: int) -> Array:
        """The probabilities that 0, 1, ... ``nodes`` of ``nodes`` are lost."""
        return np.array(common_shock(nodes, self.shock, self.private))


def fit_common_shock(*, nodes: int, p_any: float, p_all: float) -> CommonShock:
    """The shock and private probabilities with which ``nodes`` nodes lose any and all as often.

    Raises:
        ValueError: no model has these: all are lost more often than any, or less often than
            independent nodes would be.
    """
    at_least_1(nodes=nodes)
    share(p_any=p_any, p_all=p_all)
    most = 1 - (1 - p_any) ** (1 / nodes)  # private, if there were no shocks
    if not most**nodes * (1 - 1e-9) <= p_all <= p_any:
        raise ValueError(
            f"p_any = {p_any}, p_all = {p_all}: {nodes} nodes can lose all with a probability "
            f"from {most**nodes:.3g} to {p_any:.3g}"
        )
    if p_any == 1:
        return CommonShock(shock=p_all, private=1.0)

    def all_lost(private: float) -> float:
        # what is left when any is not lost is known; it falls as less is owed to the shock
        return 1 - (1 - p_any) * (1 - private**nodes) / (1 - private) ** nodes

    low, high = 0.0, most
    for _ in range(200):
        middle = (low + high) / 2
        if all_lost(middle) > p_all:
            low = middle
        else:
            high = middle
    private = (low + high) / 2
    return CommonShock(shock=max(0.0, 1 - (1 - p_any) / (1 - private) ** nodes), private=private)


class Shock(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of the cells with these numbers go, with this probability within a tick.

    Raises:
        ValueError: the probability is outside [0, 1].
    """

    probability: float
    cells: frozenset[int]

    def __post_init__(self) -> None:
        share(probability=self.probability)


def shared(*, loss: float, correlation: float) -> float:
    """The probability of a shock over two cells that makes their losses correlate so strongly.

    Each cell is lost with probability ``loss`` in all. From cov = (1-p)^2 s / (1-s) follows
    s = r p / (1 - p + r p).

    Raises:
        ValueError: a value is outside [0, 1].
    """
    share(loss=loss, correlation=correlation)
    return correlation * loss / (1 - loss + correlation * loss) if loss < 1 else correlation


def lost_under(nodes: Sequence[int], shocks: Sequence[Shock], private: Sequence[float]) -> Array:
    """The probabilities that 0, 1, ... of all nodes are lost within a tick.

    Args:
        nodes: in each cell.
        shocks: over one cell or several.
        private: each cell's probability that a node goes by itself, where no shock hits the cell.

    Raises:
        ValueError: there are more than 14 shocks over several cells.
    """
    wide = [shock for shock in shocks if len(shock.cells) > 1 and shock.probability]
    if len(wide) > _MOST_SHARED:
        raise ValueError(f"{len(wide)} shocks over several cells: at most {_MOST_SHARED}")
    own = [
        math.prod(1 - s.probability for s in shocks if s.cells == {cell})
        for cell in range(len(nodes))
    ]
    spared = [
        CommonShock(shock=1 - own[cell], private=private[cell]).lost(count)
        for cell, count in enumerate(nodes)
    ]
    total = np.zeros(sum(nodes) + 1)
    for hits in itertools.product((False, True), repeat=len(wide)):
        chance = 1.0
        struck: set[int] = set()
        for shock, hit in zip(wide, hits, strict=True):
            chance *= shock.probability if hit else 1 - shock.probability
            struck |= shock.cells if hit else set()
        gone = sum(nodes[cell] for cell in struck)
        rest = np.ones(1)
        for cell in range(len(nodes)):
            if cell not in struck:
                rest = np.convolve(rest, spared[cell])
        total[gone : gone + len(rest)] += chance * rest
    return total
