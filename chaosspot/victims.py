"""Which nodes go together: victims as a draw from a model of correlated losses; pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Annotated, Literal

from msgspec import Meta

from chaosspot.correlation import beta_binomial, common_shock
from chaosspot.nodes import Node
from chaosspot.toml import Value

__all__ = ["LEAST_P", "BetaBinomial", "CommonShock", "Correlation", "p_at_least", "victims"]

Share = Annotated[float, Meta(ge=0.0, le=1.0)]

LEAST_P = 0.01  # of what is asked for: what is less likely would have to be drawn too often
_TRIES = 10_000  # all in vain once in 10 ** 43 draws of that probability


class _Drawn(Value, frozen=True, kw_only=True, tag_field="kind"):
    """``by``: nodes of one zone, or of one family, go together; or all. Groups are independent.

    ``at_least``: the draw given that so many go in all.
    """

    by: Literal["zone", "family", "all"] = "zone"
    at_least: Annotated[int, Meta(ge=0)] = 0


class BetaBinomial(_Drawn, frozen=True, kw_only=True, tag="beta-binomial"):
    """Each node goes with probability ``loss``; any two of a group correlate with ``rho``."""

    loss: Share
    rho: Share

    def lost(self, nodes: int) -> list[float]:
        """The probabilities that 0, 1, ... of a group's ``nodes`` go."""
        return beta_binomial(nodes, self.loss, self.rho)


class CommonShock(_Drawn, frozen=True, kw_only=True, tag="common-shock"):
    """With probability ``shock`` the whole group goes, else each node with ``private``."""

    shock: Share
    private: Share = 0.0

    def lost(self, nodes: int) -> list[float]:
        """The probabilities that 0, 1, ... of a group's ``nodes`` go."""
        return common_shock(nodes, self.shock, self.private)


Correlation = BetaBinomial | CommonShock


def victims(
    model: Correlation, ranked: Sequence[Node], uniform: Callable[[int, str], float]
) -> list[str]:
    """The names of the nodes that a draw takes, group by group, each from the front of ``ranked``.

    Nodes of a group are alike to the models: how many go is all there is to draw.

    Args:
        model: what to draw from.
        ranked: the nodes that may go, in an order that owes nothing to what they are.
        uniform: a number in [0, 1) for the number of a try and a group.
    """
    groups = _grouped(model, ranked)
    bounds = {name: list(accumulate(model.lost(len(nodes)))) for name, nodes in groups.items()}
    for turn in range(_TRIES):
        taken: list[str] = []
        for name, nodes in groups.items():
            at = uniform(turn, name)
            lost = sum(at >= bound for bound in bounds[name][:-1])
            taken += [node.name for node in nodes[:lost]]
        if len(taken) >= model.at_least:
            return taken
    return []


def p_at_least(model: Correlation, nodes: Iterable[Node]) -> float:
    """The probability that a draw takes as many of ``nodes`` as are asked for (``at_least``)."""
    total = [1.0]
    for group in _grouped(model, nodes).values():
        lost = model.lost(len(group))
        added = [0.0] * (len(total) + len(lost) - 1)
        for i, p in enumerate(total):
            for k, q in enumerate(lost):
                added[i + k] += p * q
        total = added
    return sum(total[model.at_least :])


def _grouped(model: Correlation, nodes: Iterable[Node]) -> dict[str, list[Node]]:
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        groups["all" if model.by == "all" else getattr(node, model.by)].append(node)
    return groups
