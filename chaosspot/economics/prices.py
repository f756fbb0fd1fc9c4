"""What nodes of each class cost, from rates or from a discount alone."""

from __future__ import annotations

import re

import msgspec

from chaosspot.checked import below_1
from chaosspot.economics.money import Amount, Rate, discount_of, one_currency
from chaosspot.economics.placement import Placement

__all__ = ["Prices", "of_placement", "parse_amount", "parse_rate", "prices"]

_RELATIVE = "on-demand node-hours"  # the currency where only a discount is known


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Rates in one currency, and where they come from."""

    spot: Rate
    on_demand: Rate
    reserved: Rate
    discount: float
    source: str


def prices(
    *,
    discount: float | None = None,
    spot: Rate | None = None,
    on_demand: Rate | None = None,
    reserved: Rate | None = None,
    source: str = "",
) -> Prices:
    """Prices from both rates, or from a discount and perhaps the on-demand rate.

    Reserved nodes cost what on-demand nodes do unless their rate is given.

    Raises:
        ValueError: too little or too much is said, or the currencies differ, or the discount is
            outside [0, 1).
    """
    if discount is None:
        if spot is None or on_demand is None:
            raise ValueError("no discount: say a discount, or the rates of spot and of on-demand")
        found = discount_of(spot=spot, on_demand=on_demand)
        how = f"rates as given: {_shown(spot)} against {_shown(on_demand)}"
    else:
        below_1(discount=discount)
        if spot is not None:
            raise ValueError(f"discount = {discount} and a spot rate: one of them is enough")
        found = discount
        on_demand = on_demand or Rate(per_node_h=1.0, currency=_RELATIVE)
        spot = Rate(per_node_h=on_demand.per_node_h * (1 - discount), currency=on_demand.currency)
        how = f"{discount:.1%} as given, not a price seen"
    reserved = reserved or on_demand
    one_currency((spot, on_demand, reserved))
    return Prices(
        spot=spot, on_demand=on_demand, reserved=reserved, discount=found, source=source or how
    )


def of_placement(placement: Placement) -> Prices:
    """The mean spot and reserved rates of a placement, weighted by its nodes.

    Raises:
        ValueError: it has no nodes on spot, or they are dearer than on-demand.
    """
    means: dict[str, Rate] = {}
    for kind in ("spot", "reserved"):
        pools = [p for p in placement.pool if p.node_class == kind and p.nodes]
        nodes = sum(pool.nodes for pool in pools)
        if nodes:
            mean = sum(pool.nodes * pool.per_node_h for pool in pools) / nodes
            means[kind] = Rate(per_node_h=mean, currency=placement.currency)
    if "spot" not in means:
        raise ValueError("the placement has no nodes on spot: choose where with chaosspot place")
    return prices(
        spot=means["spot"],
        on_demand=placement.on_demand,
        reserved=means.get("reserved"),
        source=placement.price_source,
    )


def parse_rate(text: str) -> Rate:
    """``1.20`` or ``1.20 EUR``, for one node and hour; US dollars unless said otherwise.

    Raises:
        ValueError: it is neither, or 0.
    """
    value, currency = _parse(text, "rate")
    return Rate(per_node_h=value, currency=currency, source="as given")


def parse_amount(text: str) -> Amount:
    """An amount of money in the same form (see :func:`parse_rate`)."""
    value, currency = _parse(text, "amount")
    return Amount(value=value, currency=currency, source="as given")


def _parse(text: str, what: str) -> tuple[float, str]:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Z]{3})?\s*", text)
    if not match:
        raise ValueError(f"{what} {text!r}: a number, and perhaps a currency, such as 1.20 EUR")
    return float(match[1]), match[2] or "USD"


def _shown(rate: Rate) -> str:
    return f"{rate.per_node_h:g} {rate.currency}"
