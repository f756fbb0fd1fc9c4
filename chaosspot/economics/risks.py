"""How likely it is that any, at least k, or all spot nodes of a placement go within one tick.

Several models, side by side: what independent nodes would do is what is often assumed, and is off
by twenty orders of magnitude where it matters. Spreading makes it less likely that all go, and
*more* likely that any goes; a gang cares about the one, its state about the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from chaosspot.checked import at_least_1
from chaosspot.economics.correlation import BetaBinomial, binomial
from chaosspot.economics.placement import Losses, Placement, Pool
from chaosspot.economics.shocks import Shock, lost_under, shared
from chaosspot.traces.trace import Array

__all__ = ["Model", "Risk", "even_spreads", "mtbi_s", "risk_of", "risks"]

Model = Literal[
    "independent nodes",
    "independent pools",
    "common shocks",
    "as seen",
    "beta-binomial",
    "common shock",
]


class Risk(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities within one tick, and the nodes that are lost in it on average.

    ``p_at_least`` is of losing ``at_least`` nodes or more.
    """

    model: Model
    pools: int
    at_least: int
    p_any: float
    p_at_least: float
    p_all: float
    mean_lost: float


def risks(placement: Placement, *, at_least: int) -> list[Risk]:
    """The three models, for the spot nodes of ``placement``.

    Raises:
        ValueError: ``at_least`` is below 1, there are no nodes on spot, or the correlations of
            zones and families are stronger together than those of nodes.
    """
    return _risks(placement, placement.spot, at_least)


def even_spreads(nodes: int, losses: Losses, *, at_least: int, most: int) -> list[Risk]:
    """``nodes`` nodes over 1, 2, 4, ... up to ``most`` equal pools that are independent.

    Raises:
        ValueError: a number is below 1.
    """
    at_least_1(nodes=nodes, at_least=at_least, most=most)
    model = BetaBinomial(loss=losses.loss, rho=losses.rho)
    numbers = [m for m in (2**power for power in range(16)) if m <= min(most, nodes)]
    return [
        risk_of(
            "independent pools",
            m,
            at_least,
            _together(model.lost, [nodes // m + (i < nodes % m) for i in range(m)]),
        )
        for m in numbers
    ]


def mtbi_s(risk: Risk, *, tick_s: float) -> float:
    """Seconds between interruptions of a gang on average: between ticks that lose any node.

    Infinite where none is ever lost.
    """
    if not 0 < risk.p_any < 1:
        return tick_s if risk.p_any else math.inf
    return tick_s / -math.log1p(-risk.p_any)


def _risks(placement: Placement, pools: Sequence[Pool], at_least: int) -> list[Risk]:
    nodes = [pool.nodes for pool in pools]
    at_least_1(at_least=at_least, spot_nodes=sum(nodes))
    alone, bulk = np.ones(1), np.ones(1)
    for pool in pools:
        loss = placement.loss_of(pool)
        alone = np.convolve(alone, binomial(pool.nodes, loss))
        model = BetaBinomial(loss=loss, rho=placement.losses.rho)
        bulk = np.convolve(bulk, model.lost(pool.nodes))
    number = len(pools)
    return [
        risk_of("independent nodes", number, at_least, alone),
        risk_of("independent pools", number, at_least, bulk),
        risk_of("common shocks", number, at_least, _shocked(placement, pools)),
    ]


def _shocked(placement: Placement, pools: Sequence[Pool]) -> Array:
    """Each pool is hit by its own shock, its zone's and its family's: together as often as two of
    its nodes' correlation says."""
    losses = placement.losses
    loss = [placement.loss_of(pool) for pool in pools]
    hit = [shared(loss=p, correlation=losses.rho) for p in loss]
    wide: list[Shock] = []
    for correlation, key in (
        (losses.same_zone, lambda p: p.zone),
        (losses.same_family, lambda p: (p.region, p.family)),
    ):
        groups: dict[object, list[int]] = {}
        for number, pool in enumerate(pools):
            groups.setdefault(key(pool), []).append(number)
        for cells in groups.values():
            if len(cells) > 1 and correlation:
                least = min(hit[cell] for cell in cells)
                chance = shared(loss=least, correlation=correlation)
                wide.append(Shock(probability=chance, cells=frozenset(cells)))
    own = []
    for number, pool in enumerate(pools):
        spared = 1.0
        for shock in wide:
            spared *= 1 - shock.probability if number in shock.cells else 1
        left = 1 - (1 - hit[number]) / spared if spared else 0.0
        if left < -1e-12:
            raise ValueError(
                f"same_zone = {losses.same_zone}, same_family = {losses.same_family}: together "
                f"more than all the bulk losses of {pool.name}"
            )
        own.append(Shock(probability=max(0.0, left), cells=frozenset({number})))
    private = [
        max(0.0, 1 - (1 - p) / (1 - c)) if c < 1 else 0.0 for p, c in zip(loss, hit, strict=True)
    ]
    return lost_under([pool.nodes for pool in pools], [*wide, *own], private)


def _together(lost: Callable[[int], Array], nodes: Sequence[int]) -> Array:
    total = np.ones(1)
    for count in nodes:
        total = np.convolve(total, lost(count))
    return total


def risk_of(model: Model, pools: int, at_least: int, lost: Array) -> Risk:
    """From the probabilities that 0, 1, ... of all nodes are lost."""
    return Risk(
        model=model,
        pools=pools,
        at_least=at_least,
        p_any=float(lost[1:].sum()),
        p_at_least=float(lost[at_least:].sum()),
        p_all=float(lost[-1]),
        mean_lost=float(np.arange(len(lost)) @ lost),
    )
