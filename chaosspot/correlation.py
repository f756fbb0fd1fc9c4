"""How many of some nodes are lost in one moment, when they are not lost independently.

Two models. *Beta-binomial*: the chance of a loss is itself drawn, once for all nodes, so that the
losses of any two correlate with ``rho``. *Common shock* (Marshall and Olkin 1967): with some
probability all go at once, else each by itself. Probabilities are not checked here.
"""

from __future__ import annotations

import math

__all__ = ["beta_binomial", "binomial", "common_shock"]


def beta_binomial(nodes: int, loss: float, rho: float) -> list[float]:
    """The probabilities that 0, 1, ... ``nodes`` are lost, each with probability ``loss``.

    With a = p (1 - rho) / rho and b = (1 - p)(1 - rho) / rho. At rho 0 it is binomial, at rho 1
    all nodes go or none.
    """
    if rho >= 1 or loss in (0, 1):
        return _all_or_none(nodes, loss)
    if rho < 1e-9:  # the beta function of such large arguments is all rounding
        return binomial(nodes, loss)
    spread = (1 - rho) / rho
    a, b = loss * spread, (1 - loss) * spread
    found = [
        math.exp(_log_choose(nodes, k) + _log_beta(k + a, nodes - k + b) - _log_beta(a, b))
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
    if loss in (0, 1):
        return _all_or_none(nodes, loss)
    p, q = math.log(loss), math.log1p(-loss)
    return [math.exp(_log_choose(nodes, k) + k * p + (nodes - k) * q) for k in range(nodes + 1)]


def _all_or_none(nodes: int, loss: float) -> list[float]:
    found = [0.0] * (nodes + 1)
    found[0] = 1 - loss
    found[nodes] += loss  # of no nodes, all are none
    return found


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
