"""All that ``chaosspot place`` finds, as one value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec
from msgspec.structs import replace

from chaosspot.economics.correlation import fit_beta_binomial
from chaosspot.economics.hybrid import Hybrid
from chaosspot.economics.money import Rate
from chaosspot.economics.placement import Kind, Losses, Placement, Survival, survivals
from chaosspot.economics.prices import of_placement
from chaosspot.economics.risks import Risk, even_spreads, mtbi_s, risks
from chaosspot.economics.seen import Seen
from chaosspot.economics.spreading import spread
from chaosspot.traces.trace import Trace

__all__ = ["Choice", "Placed", "choose", "fitted", "rows"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: whose loss to survive; or to ``keep`` the nodes where they are.

    ``at_least_lost``: the k of P(at least k lost); by default half of the spot nodes.

    Raises:
        ValueError: something other than zone or family is to be survived.
    """

    survive: tuple[str, ...] = ("zone",)
    keep: bool = False
    at_least_lost: int | None = None

    def __post_init__(self) -> None:
        for kind in self.survive:
            if kind not in get_args(Kind):
                raise ValueError(f"survive = {kind!r}: valid: {', '.join(get_args(Kind))}")

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in get_args(Kind) if kind in self.survive)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A placement and its risks.

    ``mtbi_h``: hours between moments that lose any node, by common shocks. ``hybrid``: what its
    share of reserved nodes is worth; None without any. ``seen``: losses as the trace has them that
    they were taken from, and as models of it do.
    """

    placement: Placement
    effective_pools: float
    survivals: list[Survival]
    risks: list[Risk]
    even_spreads: list[Risk]
    mtbi_h: float
    cost_per_h: float
    on_demand_per_h: float
    hybrid: Hybrid | None = None
    hybrid_break_even_rework: float | None = None
    seen: Seen | None = None


def fitted(placement: Placement, trace: Trace, *, tick_s: float | None = None) -> Placement:
    """``placement`` with the losses that a trace shows within ticks of ``tick_s`` seconds.

    Raises:
        TraceError: the trace says nothing about losses.
    """
    tick_s = placement.losses.tick_s if tick_s is None else tick_s
    model = fit_beta_binomial(trace.ticks(tick_s))
    losses = replace(
        placement.losses,
        tick_s=tick_s,
        loss=model.loss,
        rho=model.rho,
        source=f"fitted to {trace.name}, ticks of {tick_s:g} s",
    )
    pools = tuple(replace(pool, loss=None) for pool in placement.pool)
    return replace(placement, losses=losses, pool=pools)


def choose(placement: Placement, choice: Choice) -> Placed:
    """Place the nodes, unless they are to stay, and say what may take them.

    Raises:
        PlacementError: no spread survives what was asked.
        ValueError: the nodes are to stay and not all have a place, or none is on spot.
    """
    chosen = placement if choice.keep else spread(placement, survive=choice.kinds)
    if not chosen.placed:
        found = sum(pool.nodes for pool in chosen.pool)
        raise ValueError(
            f"{found} of {chosen.nodes + chosen.coordinators} nodes are placed in the file: "
            "place them all, or let the rule do it"
        )
    if not chosen.spot:
        raise ValueError("no nodes are on spot: there is nothing to lose")
    k = choice.at_least_lost or max(1, chosen.spot_nodes // 2)
    if k > chosen.spot_nodes:
        raise ValueError(f"at_least_lost = {k}: {chosen.spot_nodes} nodes are on spot")
    found_risks = risks(chosen, at_least=k)
    hybrid = _hybrid(chosen)
    zones = len({pool.zone for pool in chosen.pool if pool.node_class == "spot"})
    return Placed(
        placement=chosen,
        effective_pools=chosen.effective_pools(),
        survivals=survivals(chosen),
        risks=found_risks,
        even_spreads=even_spreads(
            chosen.spot_nodes, _mean_losses(chosen), at_least=k, most=max(zones, 1)
        ),
        mtbi_h=mtbi_s(found_risks[-1], tick_s=chosen.losses.tick_s) / 3600,
        cost_per_h=sum(pool.nodes * pool.per_node_h for pool in chosen.pool),
        on_demand_per_h=(chosen.nodes + chosen.coordinators) * chosen.on_demand_per_node_h,
        hybrid=hybrid,
        hybrid_break_even_rework=hybrid.break_even_rework if hybrid else None,
    )


def rows(found: Placed) -> Iterator[tuple[str, str]]:
    """What people are shown: a label and what was found, the bill last."""
    losses = found.placement.losses
    yield "losses", f"{losses.loss:.3g} of nodes within {losses.tick_s:g} s, rho {losses.rho:.3g}"
    yield "  known from", losses.source
    for seen in found.survivals:
        yield f"loss of {seen.kind} {seen.name}", _survived(seen, found.placement)
    yield (
        "effective pools",
        f"{found.effective_pools:.2f} of {len(found.placement.spot)} on spot",
    )
    yield "any node lost", f"every {found.mtbi_h:.3g} h on average, by common shocks"
    if found.hybrid:
        yield (
            "reserved",
            f"{found.hybrid.reserved_share:.1%} of nodes; cheaper than spot alone only if that "
            f"reworks more than {found.hybrid_break_even_rework:.1%} where this reworks nothing",
        )
    saved = 1 - found.cost_per_h / found.on_demand_per_h
    yield (
        "price",
        f"{found.cost_per_h:.4g} {found.placement.currency}/h, {saved:.2%} below on-demand before "
        f"any rework ({found.placement.price_source})",
    )


def _survived(seen: Survival, placement: Placement) -> str:
    left = f"{seen.lost_nodes} nodes, {seen.left_nodes} left of {placement.min_nodes} needed"
    if seen.survives:
        return f"survived: {left}; redundancy {seen.needs_copies} holds the state"
    if seen.state_survives:
        return f"not survived: {left}"
    needed = (
        f"redundancy {seen.needs_copies} would hold the state"
        if seen.needs_copies is not None
        else "it touches every zone, so no redundancy surely holds the state"
    )
    return f"not survived: {left}; {needed}"


def _mean_losses(placement: Placement) -> Losses:
    nodes = placement.spot_nodes
    mean = sum(pool.nodes * placement.loss_of(pool) for pool in placement.spot) / nodes
    return replace(placement.losses, loss=mean)


def _hybrid(placement: Placement) -> Hybrid | None:
    reserved: list[tuple[int, Rate]] = [
        (pool.nodes, pool.rate)
        for pool in placement.pool
        if pool.node_class == "reserved" and pool.nodes
    ]
    if not reserved:
        return None
    number = sum(nodes for nodes, _ in reserved)
    mean = sum(nodes * rate.per_node_h for nodes, rate in reserved) / number
    return Hybrid(
        reserved_share=number / (placement.nodes + placement.coordinators),
        reserved_price=mean / placement.on_demand_per_node_h,
        discount=of_placement(placement).discount,
    )
