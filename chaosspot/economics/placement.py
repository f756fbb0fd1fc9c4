"""Where a job's nodes are, or may be: a TOML file as a frozen value.

Prices are per node and hour. ``depth_nodes`` and ``loss`` are what its writer knows of a pool:
no provider publishes how deep a pool is, and an advisor's interruption bands are no hazard.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Literal

import msgspec
import numpy as np

from chaosspot import toml
from chaosspot.checked import above_0, at_least_0, at_least_1, share
from chaosspot.economics.correlation import effective_pools
from chaosspot.economics.ledger import NodeClass
from chaosspot.economics.money import Rate, one_currency
from chaosspot.traces.trace import Array

__all__ = ["Losses", "Placement", "Pool", "Survival", "survivals"]

Kind = Literal["zone", "family"]

_MOST_NODES = 10_000  # every one of them is placed, and counted in every model


class Pool(toml.Value, frozen=True, kw_only=True):
    """Nodes of one family in one zone, of one class; ``nodes`` is how many are placed there.

    ``depth_nodes``: the most that can be had. ``loss``: each node's probability to be lost within
    a tick, instead of the file's.
    """

    zone: str
    family: str
    per_node_h: float
    region: str = ""
    node_class: NodeClass = "spot"
    currency: str = "USD"
    nodes: int = 0
    depth_nodes: int | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        above_0(per_node_h=self.per_node_h)
        at_least_0(nodes=self.nodes, depth_nodes=self.depth_nodes or 0)
        if self.loss is not None:
            share(loss=self.loss)
        if self.depth_nodes is not None and self.nodes > self.depth_nodes:
            raise ValueError(f"nodes = {self.nodes}: more than depth_nodes = {self.depth_nodes}")

    @property
    def rate(self) -> Rate:
        return Rate(per_node_h=self.per_node_h, currency=self.currency)

    @property
    def name(self) -> str:
        return f"{self.zone} {self.family}"


class Losses(toml.Value, frozen=True, kw_only=True):
    """How nodes are lost within a tick; ``source`` says how that is known.

    ``loss``: the probability for each node. ``rho``: the correlation of two nodes of one pool.
    ``same_family`` and ``same_zone``: the correlation of two pools of one family in other zones of
    a region, and of other families in one zone.
    """

    tick_s: float
    loss: float
    rho: float
    source: str
    same_family: float = 0.0
    same_zone: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        above_0(tick_s=self.tick_s)
        share(loss=self.loss, rho=self.rho, same_family=self.same_family, same_zone=self.same_zone)
        if not self.source.strip():
            raise ValueError("source is empty: losses say how they are known")


class Placement(toml.Value, frozen=True, kw_only=True):
    """A job of ``nodes`` workers and where they may be.

    ``min_nodes``: the least that training goes on with. ``redundancy``: copies of each part of the
    state, kept in different zones as far as there are as many. ``coordinators`` and
    ``critical_stages`` times ``nodes_per_stage`` nodes go on reserved pools; coordinators are no
    workers.
    """

    nodes: int
    on_demand_per_node_h: float
    price_source: str
    pool: tuple[Pool, ...]
    losses: Losses
    min_nodes: int = 1
    redundancy: int = 2
    coordinators: int = 0
    critical_stages: int = 0
    nodes_per_stage: int = 1
    currency: str = "USD"

    def __post_init__(self) -> None:
        super().__post_init__()
        above_0(on_demand_per_node_h=self.on_demand_per_node_h)
        at_least_1(nodes=self.nodes, min_nodes=self.min_nodes, redundancy=self.redundancy)
        at_least_0(coordinators=self.coordinators, critical_stages=self.critical_stages)
        at_least_1(nodes_per_stage=self.nodes_per_stage, pools=len(self.pool))
        if self.nodes > _MOST_NODES:
            raise ValueError(f"nodes = {self.nodes}: at most {_MOST_NODES}")
        if self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes = {self.min_nodes}: at most nodes = {self.nodes}")
        if self.critical_nodes > self.nodes:
            raise ValueError(
                f"{self.critical_nodes} nodes of critical stages: at most nodes = {self.nodes}"
            )
        one_currency([self.on_demand, *(pool.rate for pool in self.pool)])
        names = [(pool.name, pool.node_class) for pool in self.pool]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two pools are {' '.join(twice)}")

    @property
    def on_demand(self) -> Rate:
        return Rate(
            per_node_h=self.on_demand_per_node_h, currency=self.currency, source=self.price_source
        )

    @property
    def critical_nodes(self) -> int:
        """Workers that the hybrid rule reserves."""
        return self.critical_stages * self.nodes_per_stage

    @property
    def reserved_nodes(self) -> int:
        """Critical workers and coordinators."""
        return self.coordinators + self.critical_nodes

    @property
    def spot(self) -> tuple[Pool, ...]:
        """The spot pools with nodes in them."""
        return tuple(p for p in self.pool if p.node_class == "spot" and p.nodes)

    @property
    def spot_nodes(self) -> int:
        return sum(pool.nodes for pool in self.spot)

    @property
    def placed(self) -> bool:
        """Whether every node has its place."""
        return sum(p.nodes for p in self.pool) == self.nodes + self.coordinators

    def loss_of(self, pool: Pool) -> float:
        """Of one node within a tick."""
        return self.losses.loss if pool.loss is None else pool.loss

    def effective_pools(self) -> float:
        """How many independent pools the spot pools are worth, weighted by their nodes.

        Raises:
            ValueError: there are no nodes on spot.
        """
        at_least_1(spot_nodes=self.spot_nodes)
        correlation = np.array([[self._between(a, b) for b in self.spot] for a in self.spot])
        weights: Array = np.array([pool.nodes for pool in self.spot]) / self.spot_nodes
        return effective_pools(correlation, weights)

    def _between(self, one: Pool, other: Pool) -> float:
        if one is other:
            return 1.0
        if one.zone == other.zone:
            return self.losses.same_zone
        alike = one.family == other.family and one.region == other.region
        return self.losses.same_family if alike else 0.0


class Survival(msgspec.Struct, frozen=True, kw_only=True):
    """What is left when all spot nodes of one zone, or of one family, go at once.

    ``needs_copies``: the redundancy with which a copy of everything surely survives; None where no
    redundancy does. ``survives``: the state does, and enough nodes are left to go on.
    """

    kind: Kind
    name: str
    lost_nodes: int
    left_nodes: int
    needs_copies: int | None
    state_survives: bool
    survives: bool


def survivals(placement: Placement) -> list[Survival]:
    """For every zone and family with spot nodes: whether the job survives its loss.

    Copies are in different zones, as far as there are as many. A loss that touches z zones may take
    z copies; one that touches all of them may take every copy. Reserved workers are not lost.
    """
    return [
        _survival(placement, kind, name, list(pools))
        for kind in ("zone", "family")
        for name, pools in groupby(
            sorted(placement.spot, key=attrgetter(kind)), key=attrgetter(kind)
        )
    ]


def _survival(placement: Placement, kind: Kind, name: str, lost: Iterable[Pool]) -> Survival:
    taken = list(lost)
    reserved = {p.zone for p in placement.pool if p.node_class != "spot" and p.nodes}
    holding = {p.zone for p in placement.spot} | (reserved if placement.critical_nodes else set())
    touched = {pool.zone for pool in taken}
    copies = min(placement.redundancy, len(holding))
    lost_nodes = sum(pool.nodes for pool in taken)
    left = placement.nodes - lost_nodes
    state = len(touched) < copies
    return Survival(
        kind=kind,
        name=name,
        lost_nodes=lost_nodes,
        left_nodes=left,
        needs_copies=len(touched) + 1 if len(touched) < len(holding) else None,
        state_survives=state,
        survives=state and left >= placement.min_nodes,
    )
