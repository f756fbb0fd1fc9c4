"""Net savings, the ledger behind them, and prices."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosspot.economics.hybrid import Hybrid
from chaosspot.economics.ledger import (
    Ledger,
    Line,
    Rework,
    break_even_rework,
    net_savings,
)
from chaosspot.economics.money import Amount, Rate, discount_of
from chaosspot.economics.prices import parse_amount, parse_rate, prices

discounts = st.floats(0, 0.99)
ratios = st.floats(0, 20)
ON_DEMAND = Rate(per_node_h=2.0)


@pytest.mark.parametrize(
    ("discount", "rework", "saved"),
    [
        (0.65, 0.05, 0.6325),
        (0.65, 0.0, 0.65),
        (0.65, 0.1, 0.615),
        (0.65, 0.5, 0.475),
        (0.661, 0.05, 0.64405),
        (0.454, 0.05, 0.4267),
        (0.67, 0.05, 0.6535),
        (0.65, 0.65 / 0.35, 0.0),
        (0.0, 0.1, -0.1),
    ],
)
def test_net_savings(discount: float, rework: float, saved: float) -> None:
    assert net_savings(discount=discount, rework=rework) == pytest.approx(saved, abs=1e-12)


@pytest.mark.parametrize(("discount", "rework"), [(0.45, 0.8182), (0.65, 1.8571), (0.7, 2.3333)])
def test_break_even(discount: float, rework: float) -> None:
    assert break_even_rework(discount=discount) == pytest.approx(rework, abs=5e-5)


@settings(deadline=None)
@given(discounts, ratios, st.floats(0.001, 1))
def test_savings_fall_with_rework_and_rise_with_the_discount(
    discount: float, rework: float, more: float
) -> None:
    saved = net_savings(discount=discount, rework=rework)
    assert net_savings(discount=discount, rework=rework + more) < saved
    assert net_savings(discount=discount + (1 - discount) * more / 2, rework=rework) > saved
    assert net_savings(discount=discount, rework=0) == pytest.approx(discount)
    edge = break_even_rework(discount=discount)
    assert net_savings(discount=discount, rework=edge) == pytest.approx(0, abs=1e-9)


@settings(deadline=None)
@given(discounts, st.floats(0.1, 1e4), st.floats(0, 1e4), st.floats(0.01, 100))
def test_rates_and_hours_say_the_same_as_ratios(
    discount: float, run_h: float, rework_h: float, on_demand: float
) -> None:
    spot = Rate(per_node_h=on_demand * (1 - discount))
    dear = Rate(per_node_h=on_demand)
    saved = Ledger(
        lines=(Line(node_class="spot", rate=spot, billed_node_h=run_h + rework_h),),
        on_demand=dear,
        run_node_h=run_h,
        run_source="drawn",
        discount_source="drawn",
    ).net_savings
    found = discount_of(spot=spot, on_demand=dear)
    assert found == pytest.approx(discount, abs=1e-9)
    expected = net_savings(discount=discount, rework=rework_h / run_h)
    assert saved == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("discount", [-0.1, 1.0, 1.5, math.nan])
def test_a_discount_outside_its_range_is_refused(discount: float) -> None:
    with pytest.raises(ValueError, match=f"discount = {discount}: at least 0 and below 1"):
        net_savings(discount=discount, rework=0.05)


def test_rework_is_split_and_adds_up() -> None:
    rework = Rework(lost_node_s=10, restart_node_s=20, stall_node_s=30, idle_node_s=40)
    assert rework.node_s == 100
    assert rework.ratio(1000) == pytest.approx(0.1)
    assert rework.ratio(0) == math.inf


def ledger(**changes: object) -> Ledger:
    """100 node-hours of work: 90 on spot, 20 on demand, 10 reserved were billed."""
    given = {
        "lines": (
            Line(node_class="spot", rate=Rate(per_node_h=0.7), billed_node_h=90),
            Line(node_class="on-demand", rate=ON_DEMAND, billed_node_h=20),
            Line(node_class="reserved", rate=Rate(per_node_h=1.2), billed_node_h=10),
        ),
        "on_demand": ON_DEMAND,
        "run_node_h": 100.0,
        "run_source": "a twin",
        "discount_source": "a price list of 1 May",
        "storage": Amount(value=3),
        "egress": Amount(value=2),
    }
    return Ledger(**(given | changes))  # type: ignore[arg-type]


def test_the_full_ledger_charges_every_class_storage_and_egress() -> None:
    full = ledger()
    assert full.cost == pytest.approx(63 + 40 + 12 + 5)
    assert full.net_savings == pytest.approx(1 - 120 / 200)
    assert full.by_class() == pytest.approx(
        {"spot": 63, "on-demand": 40, "reserved": 12, "storage": 3, "egress": 2}
    )


@pytest.mark.parametrize("source", ["run_source", "discount_source"])
def test_a_result_says_where_it_comes_from(source: str) -> None:
    with pytest.raises(ValueError, match=f"{source} is empty"):
        ledger(**{source: "  "})


@pytest.mark.parametrize(
    "changes",
    [
        {"egress": Amount(value=2, currency="EUR")},
        {"on_demand": Rate(per_node_h=2, currency="EUR")},
    ],
)
def test_currencies_do_not_mix(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"rates in different currencies: (EUR, USD|USD, EUR)"):
        ledger(**changes)


def test_prices_come_from_a_discount_or_from_two_rates() -> None:
    by_rates = prices(spot=parse_rate("1.20 EUR"), on_demand=parse_rate("4.00 EUR"))
    assert by_rates.discount == pytest.approx(0.7)
    assert by_rates.source == "rates as given: 1.2 EUR against 4 EUR"
    by_discount = prices(discount=0.7, on_demand=parse_rate("4"))
    assert by_discount.spot.per_node_h == pytest.approx(1.2)
    assert "not a price seen" in by_discount.source
    assert prices(discount=0.7).spot.per_node_h == pytest.approx(0.3)
    assert parse_amount("5.5").value == 5.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "say a discount, or the rates"),
        ({"spot": "1.2"}, "say a discount, or the rates"),
        ({"spot": "5", "on_demand": "4"}, "spot rate 5.0 is above the on-demand rate 4.0"),
        ({"spot": "1 EUR", "on_demand": "4"}, "different currencies: EUR, USD"),
        ({"spot": "1", "on_demand": "4", "reserved": "2 EUR"}, "different currencies: USD, EUR"),
        ({"spot": "cheap", "on_demand": "4"}, "rate 'cheap': a number"),
        ({"spot": "0", "on_demand": "4"}, "per_node_h = 0.0: above 0"),
    ],
)
def test_prices_that_cannot_be_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prices(**{name: parse_rate(text) for name, text in given.items()})  # type: ignore[arg-type]


def test_a_hybrid_is_insurance_not_a_saving() -> None:
    job = Hybrid(reserved_share=0.25, reserved_price=0.6, discount=0.65)
    assert job.net_savings(rework=0.02) == pytest.approx(0.57925)
    assert job.break_even_rework == pytest.approx(0.1786, abs=5e-5)
    dear = msgspec.structs.replace(job, reserved_price=1.0)
    assert dear.net_savings(rework=0.02) == pytest.approx(0.47725)
    assert dear.break_even_rework == pytest.approx(0.4643, abs=5e-5)
    waiting = msgspec.structs.replace(job, waiting_h_per_h=1 / 0.4183 - 1)
    assert waiting.net_savings(rework=0.02) == pytest.approx(0.36648, abs=1e-5)


@settings(deadline=None)
@given(discounts, ratios, st.floats(0, 2))
def test_without_reserved_nodes_a_hybrid_is_spot_alone(
    discount: float, rework: float, waiting: float
) -> None:
    job = Hybrid(reserved_share=0, reserved_price=0.6, discount=discount, waiting_h_per_h=waiting)
    assert job.net_savings(rework=rework) == pytest.approx(
        net_savings(discount=discount, rework=rework)
    )
    assert job.break_even_rework == pytest.approx(0, abs=1e-9)
