"""Nodes are lost together: how strongly, and how many independent pools there are in effect.

Two models of one tick. *Beta-binomial*: the chance of a loss is itself drawn anew each tick, so
that two nodes of one pool are lost together with correlation ``rho``. *Common shock*
(:mod:`chaosspot.economics.shocks`): now and then all of a pool go at once, and each node by itself.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chaosspot import correlation
from chaosspot.checked import at_least_1, share
from chaosspot.traces.trace import Array, Counts, Ticks, TraceError

__all__ = [
    "BetaBinomial",
    "binomial",
    "correlations",
    "effective_pools",
    "fit_beta_binomial",
]


class BetaBinomial(msgspec.Struct, frozen=True, kw_only=True):
    """Losses of one pool within a tick: ``loss`` is each node's probability, ``rho`` the
    correlation of two nodes' losses.

    With a = p (1 - rho) / rho and b = (1 - p)(1 - rho) / rho. At rho 0 it is binomial, at rho 1
    all nodes go or none.

    Raises:
        ValueError: one is outside [0, 1].
    """

    loss: float
    rho: float

    def __post_init__(self) -> None:
        share(loss=self.loss, rho=self.rho)

    def lost(self, nodes: int) -> Array:
        """The probabilities that 0, 1, ... ``nodes`` of ``nodes`` are lost."""
        at_least_1(nodes=nodes)
        return np.array(correlation.beta_binomial(nodes, self.loss, self.rho))


def binomial(nodes: int, loss: float) -> Array:
    """The same for nodes that are lost independently of each other."""
    share(loss=loss)
    return np.array(correlation.binomial(nodes, loss))


def fit_beta_binomial(ticks: Ticks) -> BetaBinomial:
    """The model whose mean and variance are those of ``ticks`` with two or more nodes up.

    rho = [sum (k - np)^2 - sum n p (1-p)] / sum n (n-1) p (1-p), held within [0, 1].

    Raises:
        TraceError: no tick had two nodes up, or none or all of them were lost.
    """
    usable = ticks.up >= 2
    n, k = ticks.up[usable].astype(np.float64), ticks.lost[usable].astype(np.float64)
    if not n.sum():
        raise TraceError("correlation needs ticks with two or more nodes up: there are none")
    p = float(k.sum() / n.sum())
    if not 0 < p < 1:
        raise TraceError(f"correlation needs losses: {int(k.sum())} of {int(n.sum())} were lost")
    each = p * (1 - p)
    rho = float((((k - n * p) ** 2).sum() - (n * each).sum()) / (n * (n - 1) * each).sum())
    return BetaBinomial(loss=p, rho=min(max(rho, 0.0), 1.0))


def correlations(rows: Counts) -> Array:
    """How the pools' numbers of nodes go together: a row a pool, a column a tick.

    Raises:
        TraceError: a pool never changed; nothing can be said about it.
    """
    for number, row in enumerate(rows):
        if row.min() == row.max():
            raise TraceError(
                f"pool {number} always had {int(row[0])} nodes: it has no correlation with others"
            )
    return np.atleast_2d(np.corrcoef(rows))


def effective_pools(matrix: Array, weights: Array | None = None) -> float:
    """How many independent pools do as much as these: 1 / (w' C w).

    Args:
        matrix: the correlations of the pools.
        weights: the share of the nodes in each; equal by default.

    Raises:
        ValueError: the sizes do not fit, or the weights do not add up to 1.
    """
    number = len(matrix)
    w = np.full(number, 1 / number) if weights is None else np.asarray(weights, dtype=np.float64)
    if matrix.shape != (number, number) or w.shape != (number,):
        raise ValueError(f"{w.shape} weights for correlations of shape {matrix.shape}")
    if w.min() < 0 or abs(float(w.sum()) - 1) > 1e-9:
        raise ValueError(f"weights = {w.tolist()}: at least 0, and together 1")
    return 1 / float(w @ matrix @ w)
