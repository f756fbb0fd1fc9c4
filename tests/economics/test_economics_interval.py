"""How often to snapshot, and what that costs when interruptions are independent."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaosspot.economics.interval import Costs, least_mtbi_s, rework_ratio
from chaosspot.economics.ledger import net_savings
from chaosspot.trainer import cadence

# stall, restart, mean time between interruptions; Young, Daly, optimum, factor, first order, saved
TABLE = [
    (2, 90, 3600, 120.00, 118.67, 118.67, 1.06027, 1.06117, 0.62891),
    (5, 90, 518, 71.97, 68.68, 68.68, 1.37160, 1.42067, 0.51994),
    (60, 600, 3600, 657.27, 617.88, 617.89, 1.42614, 1.48421, 0.50085),
    (60, 600, 72000, 2939.39, 2899.52, 2899.52, 1.05068, 1.05105, 0.63226),
    (30, 300, 6336, 616.57, 596.73, 596.74, 1.15750, 1.16284, 0.59487),
]
stalls = st.floats(0.01, 120)
means = st.floats(60, 1e6)


@pytest.mark.parametrize("row", TABLE)
def test_the_published_intervals(row: tuple[float, ...]) -> None:
    stall_s, restart_s, mtbi_s, young, daly, optimum, factor, first_order, saved = row
    given = {"stall_s": stall_s, "mtbi_s": mtbi_s}
    assert cadence.young_s(**given) == pytest.approx(young, abs=0.005)
    assert cadence.daly_s(**given) == pytest.approx(daly, abs=0.006)
    best_s = cadence.optimum_s(**given)
    assert best_s == pytest.approx(optimum, abs=0.005)
    costs = {"interval_s": best_s, "stall_s": stall_s, "restart_s": restart_s, "mtbi_s": mtbi_s}
    assert cadence.time_factor(**costs) == pytest.approx(factor, abs=1e-5)
    assert cadence.first_order_factor(**costs) == pytest.approx(first_order, abs=1e-5)
    rework = cadence.time_factor(**costs) - 1
    assert net_savings(discount=0.65, rework=rework) == pytest.approx(saved, abs=1e-5)


def test_what_is_lost_within_a_long_segment_is_less_than_half_of_it() -> None:
    assert cadence.expected_lost_s(segment_s=1860, mtbi_s=3600) == pytest.approx(850, abs=0.5)


@settings(deadline=None)
@given(stalls, means, st.floats(0, 600))
def test_the_optimum_solves_its_equation_and_nothing_near_it_is_better(
    stall_s: float, mtbi_s: float, restart_s: float
) -> None:
    best_s = cadence.optimum_s(stall_s=stall_s, mtbi_s=mtbi_s)
    assert 0 < best_s <= mtbi_s
    u, x = best_s / mtbi_s, stall_s / mtbi_s
    assert (1 - u) * math.exp(u + x) == pytest.approx(1, abs=1e-7)

    def factor(interval_s: float) -> float:
        return cadence.time_factor(
            interval_s=interval_s, stall_s=stall_s, restart_s=restart_s, mtbi_s=mtbi_s
        )

    assert factor(best_s) <= factor(best_s * 1.01) * (1 + 1e-12)
    assert factor(best_s) <= factor(best_s * 0.99) * (1 + 1e-12)


@settings(deadline=None)
@given(st.floats(1e-9, 1e-3), means)
def test_the_optimum_is_smooth_where_its_way_of_being_found_changes(
    share: float, mtbi_s: float
) -> None:
    """Daly's series has an error of the order of (d/M)^2."""
    given = {"stall_s": share * mtbi_s, "mtbi_s": mtbi_s}
    assert cadence.optimum_s(**given) == pytest.approx(cadence.daly_s(**given), rel=1e-6)


def test_the_ends_of_the_optimum() -> None:
    assert cadence.optimum_s(stall_s=0, mtbi_s=100) == 0
    assert cadence.optimum_s(stall_s=1e6, mtbi_s=100) == 100
    assert cadence.daly_s(stall_s=200, mtbi_s=100) == 100
    assert cadence.optimum_s(stall_s=1, mtbi_s=math.inf) == math.inf


@settings(max_examples=25, deadline=None)
@given(
    st.floats(30, 3600), st.floats(0, 60), st.floats(0, 600), st.floats(600, 1e5), st.integers(0)
)
def test_monte_carlo_agrees_with_the_expected_time(
    interval_s: float, stall_s: float, restart_s: float, mtbi_s: float, seed: int
) -> None:
    """Gaps are drawn one from each of as many equally likely ranges: the same, with less noise."""
    assume(interval_s + stall_s + restart_s <= 2 * mtbi_s)
    number = 100_000
    drawn = (np.arange(number) + np.random.default_rng(seed).random(number)) / number
    gaps_s = -mtbi_s * np.log1p(-drawn)
    segments = np.floor(np.maximum(0, gaps_s - restart_s) / (interval_s + stall_s))
    simulated = gaps_s.sum() / (segments.sum() * interval_s)
    factor = cadence.time_factor(
        interval_s=interval_s, stall_s=stall_s, restart_s=restart_s, mtbi_s=mtbi_s
    )
    assert factor == pytest.approx(simulated, rel=0.005)


@settings(max_examples=25, deadline=None)
@given(st.floats(1, 3600), st.floats(600, 1e5), st.integers(0))
def test_monte_carlo_agrees_with_what_is_lost(segment_s: float, mtbi_s: float, seed: int) -> None:
    number = 100_000
    drawn = (np.arange(number) + np.random.default_rng(seed).random(number)) / number
    gaps_s = -mtbi_s * np.log1p(drawn * math.expm1(-segment_s / mtbi_s))  # all within the segment
    lost_s = cadence.expected_lost_s(segment_s=segment_s, mtbi_s=mtbi_s)
    assert lost_s == pytest.approx(gaps_s.mean(), rel=0.005)


@settings(deadline=None)
@given(st.floats(1, 3600), st.floats(0, 60), st.floats(0, 600), st.floats(600, 1e6))
def test_the_expected_time_grows_with_every_cost(
    interval_s: float, stall_s: float, restart_s: float, mtbi_s: float
) -> None:
    given = {
        "interval_s": interval_s,
        "stall_s": stall_s,
        "restart_s": restart_s,
        "mtbi_s": mtbi_s,
    }
    factor = cadence.time_factor(**given)
    assert factor >= 1
    assert cadence.time_factor(**{**given, "restart_s": restart_s + 10}) > factor
    assert cadence.time_factor(**{**given, "stall_s": stall_s + 1}) > factor
    assert cadence.time_factor(**{**given, "mtbi_s": mtbi_s * 2}) < factor


@settings(deadline=None)
@given(st.floats(1, 3600), st.floats(0, 60), st.floats(0, 600))
def test_without_interruptions_only_stalls_are_left(
    interval_s: float, stall_s: float, restart_s: float
) -> None:
    given = {"interval_s": interval_s, "stall_s": stall_s, "restart_s": restart_s}
    limit = (interval_s + stall_s) / interval_s
    for mtbi_s in (1e13, math.inf):
        assert cadence.time_factor(**given, mtbi_s=mtbi_s) == pytest.approx(limit)
        assert cadence.first_order_factor(**given, mtbi_s=mtbi_s) == pytest.approx(limit)
    half_s = cadence.expected_lost_s(segment_s=interval_s, mtbi_s=math.inf)
    assert half_s == pytest.approx(interval_s / 2)


def test_no_interval_is_ever_finished_when_interruptions_are_too_frequent() -> None:
    given = {"interval_s": 3600.0, "stall_s": 1.0, "restart_s": 60.0, "mtbi_s": 1.0}
    assert cadence.time_factor(**given) == math.inf
    assert cadence.first_order_factor(**given) == math.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stall_s": -1.0}, r"stall_s = -1\.0: at least 0"),
        ({"mtbi_s": 0.0}, r"mtbi_s = 0\.0: above 0"),
        ({"interval_s": 0.0}, r"interval_s = 0\.0: above 0"),
        ({"restart_s": math.nan}, "restart_s = nan: at least 0"),
        ({"restart_s": math.inf}, "restart_s = inf: must be finite"),
    ],
)
def test_times_that_cannot_be_are_refused(changes: dict[str, float], message: str) -> None:
    given = {"interval_s": 60.0, "stall_s": 1.0, "restart_s": 1.0, "mtbi_s": 100.0} | changes
    with pytest.raises(ValueError, match=message):
        cadence.time_factor(**given)


def test_rework_is_exact_where_all_since_the_last_snapshot_is_lost() -> None:
    costs = Costs(interval_s=617.89, stall_s=60, restart_s=600)
    assert rework_ratio(costs, mtbi_s=3600) == pytest.approx(0.42614, abs=1e-5)


@settings(deadline=None)
@given(st.floats(60, 600), st.floats(0, 5), st.floats(0, 60))
def test_first_order_meets_the_exact_rework_when_interruptions_are_rare(
    interval_s: float, stall_s: float, restart_s: float
) -> None:
    exact = Costs(interval_s=interval_s, stall_s=stall_s, restart_s=restart_s)
    lost_s = cadence.expected_lost_s(segment_s=interval_s + stall_s, mtbi_s=1e6)
    known = Costs(interval_s=interval_s, stall_s=stall_s, restart_s=restart_s, lost_s=lost_s)
    assert rework_ratio(known, mtbi_s=1e6) == pytest.approx(
        rework_ratio(exact, mtbi_s=1e6), rel=2e-3, abs=1e-7
    )


def test_a_notice_that_is_kept_spares_what_would_be_lost() -> None:
    def rework(flushed: float) -> float:
        costs = Costs(
            interval_s=600, stall_s=1, restart_s=30, lost_s=300, flush_s=5, flushed=flushed
        )
        return rework_ratio(costs, mtbi_s=10_000)

    assert rework(1.0) == pytest.approx(601 / 600 / (1 - 35 / 10_000) - 1)
    assert rework(0.5) == pytest.approx(601 / 600 / (1 - (2.5 + 150 + 30) / 10_000) - 1)
    assert rework(0.0) > rework(0.5) > rework(1.0)


def test_how_rare_interruptions_must_be_for_five_per_cent() -> None:
    costs = Costs(interval_s=1800, stall_s=60, restart_s=600)
    assert least_mtbi_s(costs, rework=0.05) == pytest.approx(1500 / (0.05 - 60 / 1800))
    assert least_mtbi_s(costs, rework=0.03) == math.inf


def test_the_trainer_gets_by_with_the_standard_library() -> None:
    """Nor does arithmetic load torch."""
    code = (
        "import sys; from chaosspot.trainer import cadence; "
        "assert not {'numpy', 'torch', 'msgspec'} & set(sys.modules), 'cadence'; "
        "from chaosspot.economics import question, placing, plot; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules), 'economics'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
