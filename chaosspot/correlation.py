"""How many of some nodes are lost in one moment, when they are not lost independently.

Two models. *Beta-binomial*: the chance of a loss is itself drawn, once for all nodes, so that the
losses of any two correlate with ``rho``. *Common shock* (Marshall and Olkin 1967): with some
probability all go at once, else each by itself. Probabilities are not checked here.
"""

from __future__ import annotations

import itertools
import math

__all__ = ["beta_binomial", "binomial", "common_shock"]


def beta_binomial(nodes: int, loss: float, rho: float) -> list[float]:
    """The probabilities that 0, 1, ... ``nodes`` are lost, each with probability ``loss``.

    With a = p (1 - rho) / rho and b = (1 - p)(1 - rho) / rho. At rho 0 it is binomial, at rho 1
    all nodes go or none.
    """
    if rho >= 1 or loss in (0, 1):
        return _all_or_none(nodes, loss)
    # The beta functions, as the products that are left of them: theirs are of logarithms so large
    # that at a small rho their difference is all rounding.
    step = rho / (1 - rho)
    losses, stays, draws = (_log_rising(start, step, nodes) for start in (loss, 1 - loss, 1.0))
    found = [
        math.exp(_log_choose(nodes, k) + losses[k] + stays[nodes - k] - draws[nodes])
        for k in range(nodes + 1)
    ]
    total = math.fsum(found)
    return [each / total for each in found]


def common_shock(nodes: int, shock: float, private: float) -> list[float]:
    """The same where all go with probability ``shock``, else each with probability ``private``."""
    found = [(1 - shock) * each for each in binomial(nodes, private)]
    found[nodes] += shock
    return found


def binomial(nodes: int, loss: float) -> list[float]:
    """The same for nodes that are lost independently of each other."""
    return beta_binomial(nodes, loss, 0.0)


def _all_or_none(nodes: int, loss: float) -> list[float]:
    found = [0.0] * (nodes + 1)
    found[0] = 1 - loss
    found[nodes] += loss  # of no nodes, all are none
    return found


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_rising(start: float, step: float, number: int) -> list[float]:
    """The logarithms of the products of the first 0, 1, ... of start, start + step, ..."""
    factors = (math.log(start + i * step) for i in range(number))
    return [0.0, *itertools.accumulate(factors)]
