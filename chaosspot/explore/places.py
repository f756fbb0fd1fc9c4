"""Strategies for where faults strike: clusters, and the nodes of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from chaosspot.nodes import Cloud, ClusterSpec, Group, Node, StoreKind
from chaosspot.schedule import Target

__all__ = ["SEEDS", "clusters", "most_taken", "of_cluster", "targets"]

SEEDS = st.integers(0, 3)
"""Which nodes are hit: a few choices are as good as many."""

_ZONES = ("a", "b", "c")
_FAMILIES = ("p4d.24xlarge", "g5.48xlarge", "a2-highgpu-8g")


def clusters(
    *,
    min_nodes: int = 1,
    max_nodes: int = 8,
    max_zones: int = 3,
    max_groups: int = 2,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    flash_bytes: int | None = None,
) -> SearchStrategy[ClusterSpec]:
    """Clusters of ``min_nodes`` to ``max_nodes`` nodes; the smallest is one group in one zone.

    Args:
        max_zones: zones that a group spreads over, at most 3.
        max_groups: groups, each with a family and a pool of its own.
        cloud, store: instead of any.
        flash_bytes: the size of every flash, instead of unlimited.

    Raises:
        ValueError: bounds that leave nothing.
    """
    if not 1 <= min_nodes <= max_nodes:
        raise ValueError(f"min_nodes = {min_nodes}, max_nodes = {max_nodes}: nothing between")
    if not 1 <= max_zones <= len(_ZONES):
        raise ValueError(f"max_zones = {max_zones}: 1 to {len(_ZONES)}")
    if max_groups < 1:
        raise ValueError(f"max_groups = {max_groups}: a cluster has at least one group")
    clouds = get_args(Cloud) if cloud is None else (cloud,)
    stores = get_args(StoreKind) if store is None else (store,)
    return _clusters(min_nodes, max_nodes, max_zones, max_groups, clouds, stores, flash_bytes)


@st.composite
def _clusters(
    draw: DrawFn,
    min_nodes: int,
    max_nodes: int,
    max_zones: int,
    max_groups: int,
    clouds: Sequence[Cloud],
    stores: Sequence[StoreKind],
    flash_bytes: int | None,
) -> ClusterSpec:
    nodes = draw(st.integers(min_nodes, max_nodes))
    groups = draw(st.integers(1, min(max_groups, nodes)))
    made: list[Group] = []
    for number in range(groups):
        left, to_come = nodes - sum(g.count for g in made), groups - number - 1
        count = draw(st.integers(1, left - to_come)) if to_come else left
        zones = draw(st.integers(1, min(max_zones, count)))
        group = Group(count=count, zones=_ZONES[:zones])
        if number:  # what tells it from the first
            family = draw(st.sampled_from(_FAMILIES))
            group = replace(group, family=family, pool=draw(st.sampled_from(["reserved", "spot"])))
        made.append(replace(group, flash_bytes=flash_bytes))
    return ClusterSpec(
        cloud=draw(st.sampled_from(clouds)),
        store=draw(st.sampled_from(stores)),
        group=tuple(made),
    )


def targets(
    *,
    cluster: ClusterSpec | None = None,
    min_count: int = 1,
    max_count: int | None = None,
    coordinator: bool = False,
) -> SearchStrategy[Target]:
    """Targets that match at least one node of ``cluster``; the smallest is any one node.

    Single nodes, several, a share, whole zones, families and pools, and everyone.

    Args:
        cluster: whose nodes; by default one of four nodes in two zones.
        min_count, max_count: nodes that a target which counts takes; as many as there are.
        coordinator: also the coordinator.

    Raises:
        ValueError: bounds that leave nothing.
    """
    cluster = cluster or ClusterSpec()
    nodes = cluster.nodes()
    most = len(nodes) if max_count is None else min(max_count, len(nodes))
    if not 1 <= min_count <= most:
        raise ValueError(f"min_count = {min_count}, max_count = {most}: no target takes so many")
    return of_cluster(nodes, min_count=min_count, max_count=most, coordinator=coordinator)


def of_cluster(
    nodes: Sequence[Node], *, min_count: int, max_count: int, coordinator: bool = False
) -> SearchStrategy[Target]:
    """:func:`targets` of these nodes, whose bounds are known to make sense."""
    return _of_cluster(tuple(nodes), min_count, max_count, coordinator)


@st.composite
def _of_cluster(
    draw: DrawFn, nodes: tuple[Node, ...], least: int, most: int, coordinator: bool
) -> Target:
    whole = [
        target
        for target in _whole(nodes)
        if target.fraction is not None or least <= sum(map(target.matches, nodes)) <= most
    ]
    ways = ["count", *(["whole"] if whole else []), *(["names"] if least <= 3 else [])]
    ways += ["coordinator"] if coordinator else []
    match draw(st.sampled_from(ways)):
        case "whole":
            return reaching(draw(st.sampled_from(whole)), nodes)
        case "coordinator":
            return Target(role="coordinator")
        case "names":
            names = st.sampled_from([node.name for node in nodes])
            some = st.lists(names, min_size=least, max_size=max(least, min(most, 3)), unique=True)
            return Target(nodes=tuple(sorted(draw(some))))
    return reaching(Target(count=draw(st.integers(least, most))), nodes)


def reaching(target: Target, nodes: Sequence[Node]) -> Target:
    """The same, of any pool if a fault that takes nodes would find too few spot nodes."""
    if target.pool is not None:
        return target
    spot = sum(node.pool == "spot" and target.matches(node) for node in nodes)
    return target if spot >= (target.count or 1) else replace(target, pool="any")


def _whole(nodes: Sequence[Node]) -> list[Target]:
    """Everything that goes together: zones, families, pools, shares."""
    return [
        *(Target(zone=zone) for zone in dict.fromkeys(node.zone for node in nodes)),
        *(Target(family=family) for family in dict.fromkeys(node.family for node in nodes)),
        *(Target(pool=pool) for pool in dict.fromkeys(node.pool for node in nodes)),
        *(Target(fraction=share) for share in (0.25, 0.5, 1.0)),
    ]


def most_taken(target: Target | None, nodes: Sequence[Node]) -> int:
    """How many of these nodes a fault with this target takes at most."""
    if target is None:
        return 1
    matching = sum(map(target.matches, nodes))
    if target.fraction is not None:
        return max(1, round(target.fraction * matching)) if matching else 0
    return matching if target.count is None else min(target.count, matching)
