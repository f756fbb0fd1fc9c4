"""Chooses how many nodes go where: a simple rule that can be followed by hand.

Critical nodes go on the cheapest reserved pools. The rest goes on spot so that no zone's share (and
no family's, if asked) is more than the job survives; of all such spreads the cheapest is taken,
and of equally cheap ones the one over the fewest pools: spreading further would only make
interruptions more frequent. Pools of one price share evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from msgspec.structs import replace

from chaosspot.economics.placement import Kind, Placement, Pool, survivals

__all__ = ["PlacementError", "spread"]

_MOST_POOLS = 12  # all their subsets are looked at


class PlacementError(ValueError):
    """No spread does what was asked."""


def spread(placement: Placement, *, survive: Sequence[Kind] = ("zone",)) -> Placement:
    """``placement`` with its nodes where the rule puts them; what was placed before is forgotten.

    Args:
        placement: the pools, the job and what it survives.
        survive: the loss of any one of these must leave the state and ``min_nodes`` nodes.

    Raises:
        PlacementError: no spread does it; the message says what stands against it.
    """
    reserved = [p for p in placement.pool if p.node_class == "reserved"]
    spot = sorted(
        (p for p in placement.pool if p.node_class == "spot"),
        key=lambda p: (p.per_node_h, placement.loss_of(p)),
    )
    if len(spot) > _MOST_POOLS:
        raise PlacementError(f"{len(spot)} spot pools: at most {_MOST_POOLS}")
    critical = _fill(placement.reserved_nodes, reserved, {}, {})
    if critical is None:
        raise PlacementError(
            f"{placement.reserved_nodes} nodes belong on reserved pools, which hold "
            f"{_depth(reserved)}"
        )
    wanted = placement.nodes - placement.critical_nodes
    best: tuple[float, int, Placement] | None = None
    most = placement.nodes - placement.min_nodes
    for size in range(1, len(spot) + 1):
        for chosen in combinations(spot, size):
            zones = {p.zone: most for p in chosen} if "zone" in survive else {}
            families = {p.family: most for p in chosen} if "family" in survive else {}
            filled = _fill(wanted, chosen, zones, families)
            if filled is None or (wanted and not all(filled.values())):
                continue
            tried = _placed(placement, critical | filled)
            if all(s.survives for s in survivals(tried) if s.kind in survive):
                cost = sum(p.nodes * p.per_node_h for p in tried.spot)
                if best is None or (round(cost, 9), size) < best[:2]:
                    best = (round(cost, 9), size, tried)
    if best is None:
        raise PlacementError(_why(placement, spot, wanted, survive))
    return best[2]


def _fill(
    nodes: int, pools: Sequence[Pool], zones: dict[str, int], families: dict[str, int]
) -> dict[Pool, int] | None:
    """One node at a time to the cheapest pool with room, of these to the emptiest; None if the
    room does not suffice."""
    filled = dict.fromkeys(pools, 0)
    in_zone: Counter[str] = Counter()
    in_family: Counter[str] = Counter()
    for _ in range(nodes):
        room = [
            pool
            for pool in pools
            if (pool.depth_nodes is None or filled[pool] < pool.depth_nodes)
            and in_zone[pool.zone] < zones.get(pool.zone, nodes)
            and in_family[pool.family] < families.get(pool.family, nodes)
        ]
        if not room:
            return None
        best = min(room, key=lambda pool: (pool.per_node_h, filled[pool]))
        filled[best] += 1
        in_zone[best.zone] += 1
        in_family[best.family] += 1
    return filled


def _placed(placement: Placement, nodes: dict[Pool, int]) -> Placement:
    pools = tuple(replace(pool, nodes=nodes.get(pool, 0)) for pool in placement.pool)
    return replace(placement, pool=pools)


def _depth(pools: Sequence[Pool]) -> str:
    depths = [pool.depth_nodes for pool in pools]
    known = [depth for depth in depths if depth is not None]
    return str(sum(known)) if len(known) == len(depths) else "any number"


def _why(placement: Placement, spot: Sequence[Pool], wanted: int, survive: Sequence[Kind]) -> str:
    zones = len({pool.zone for pool in spot})
    return (
        f"no spread of {wanted} spot nodes survives the loss of any one {' or '.join(survive)}: "
        f"{placement.min_nodes} of {placement.nodes} nodes must be left, each part of the state "
        f"has {placement.redundancy} copies in different zones, there are {len(spot)} spot pools "
        f"in {zones} zones, which hold {_depth(spot)}"
    )
