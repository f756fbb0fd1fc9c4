"""Prices, and that those of different currencies do not mix."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chaosspot.checked import above_0, at_least_0

__all__ = ["Amount", "Rate", "discount_of", "one_currency"]


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Money. ``source`` says where it comes from.

    Raises:
        ValueError: it is negative.
    """

    value: float
    currency: str = "USD"
    source: str = ""

    def __post_init__(self) -> None:
        at_least_0(value=self.value)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Money for one node for one hour. ``source`` says where it comes from, with its date.

    Raises:
        ValueError: it is not positive.
    """

    per_node_h: float
    currency: str = "USD"
    source: str = ""

    def __post_init__(self) -> None:
        above_0(per_node_h=self.per_node_h)


def one_currency(values: Iterable[Amount | Rate]) -> str:
    """The currency that all have.

    Raises:
        ValueError: there are several, or no value at all.
    """
    found = list(dict.fromkeys(value.currency for value in values))
    if len(found) != 1:
        raise ValueError(f"rates in different currencies: {', '.join(found) or 'no rate at all'}")
    return found[0]


def discount_of(*, spot: Rate, on_demand: Rate) -> float:
    """How much cheaper spot is, a share of the on-demand rate.

    Raises:
        ValueError: the currencies differ, or spot is dearer than on-demand.
    """
    one_currency((spot, on_demand))
    if spot.per_node_h > on_demand.per_node_h:
        raise ValueError(
            f"spot rate {spot.per_node_h} is above the on-demand rate {on_demand.per_node_h}: "
            "there is no discount"
        )
    return 1 - spot.per_node_h / on_demand.per_node_h
