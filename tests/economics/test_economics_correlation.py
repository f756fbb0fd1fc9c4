"""Nodes that are lost together: models, fits, effective pools."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from chaosspot.economics.correlation import (
    BetaBinomial,
    binomial,
    correlations,
    effective_pools,
    fit_beta_binomial,
)
from chaosspot.economics.shocks import (
    CommonShock,
    Shock,
    fit_common_shock,
    lost_under,
    shared,
)
from chaosspot.traces.trace import Ticks, TraceError

FITTED = BetaBinomial(loss=0.044808, rho=0.859)  # 16 nodes of us-west-2a
losses = st.floats(0.01, 0.6)
numbers = st.integers(1, 32)


def test_the_published_fit_of_sixteen_nodes() -> None:
    lost = FITTED.lost(16)
    assert 1 - lost[0] == pytest.approx(0.0663, rel=2e-3)
    assert lost[16] == pytest.approx(0.02716, rel=2e-3)
    assert lost[8:].sum() == pytest.approx(0.04494, rel=2e-3)
    alone = binomial(16, FITTED.loss)
    assert 1 - alone[0] == pytest.approx(0.5197, abs=1e-4)
    assert alone[16] == pytest.approx(2.63e-22, rel=2e-3)
    assert alone[8:].sum() == pytest.approx(1.51e-7, rel=5e-3)


@settings(deadline=None)
@given(losses, st.floats(0, 1), numbers)
@example(0.25, 1e-9, 1)  # where a difference of two beta functions is all rounding
@example(0.25, 1e-12, 16)
@example(0.75, 1 - 1e-12, 16)
def test_a_beta_binomial_has_the_mean_and_variance_it_was_given(
    loss: float, rho: float, nodes: int
) -> None:
    lost = BetaBinomial(loss=loss, rho=rho).lost(nodes)
    k = np.arange(nodes + 1)
    assert lost.min() >= 0
    assert lost.sum() == pytest.approx(1)
    mean = float(k @ lost)
    assert mean == pytest.approx(nodes * loss, rel=1e-6)
    variance = nodes * loss * (1 - loss) * (1 + (nodes - 1) * rho)
    assert float((k - mean) ** 2 @ lost) == pytest.approx(variance, rel=1e-5)


@settings(deadline=None)
@given(losses, numbers)
def test_the_ends_of_correlation(loss: float, nodes: int) -> None:
    alone = binomial(nodes, loss)
    assert BetaBinomial(loss=loss, rho=0).lost(nodes) == pytest.approx(alone)
    assert BetaBinomial(loss=loss, rho=1e-7).lost(nodes) == pytest.approx(alone, abs=1e-5)
    together = BetaBinomial(loss=loss, rho=1).lost(nodes)
    assert (together[0], together[-1]) == pytest.approx((1 - loss, loss))
    nearly = BetaBinomial(loss=loss, rho=1 - 1e-9).lost(nodes)
    assert nearly == pytest.approx(together, abs=1e-6)


@settings(deadline=None)
@given(losses, st.floats(0.01, 0.9), st.floats(0.01, 0.09), st.integers(2, 32))
def test_more_correlation_means_fewer_moments_and_worse_ones(
    loss: float, rho: float, more: float, nodes: int
) -> None:
    less, greater = (BetaBinomial(loss=loss, rho=r).lost(nodes) for r in (rho, rho + more))
    assert greater[-1] > less[-1]
    assert 1 - greater[0] < 1 - less[0]


@settings(max_examples=20, deadline=None)
@given(losses, st.floats(0.02, 0.95), st.integers(2, 32), st.integers(0))
def test_monte_carlo_agrees_with_the_beta_binomial(
    loss: float, rho: float, nodes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    spread = (1 - rho) / rho
    chances = rng.beta(loss * spread, (1 - loss) * spread, size=200_000)
    drawn = rng.binomial(nodes, chances)
    lost = BetaBinomial(loss=loss, rho=rho).lost(nodes)
    half = (nodes + 1) // 2
    for at_least in (1, half, nodes):
        assert lost[at_least:].sum() == pytest.approx(np.mean(drawn >= at_least), abs=0.005)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 0.5), st.floats(0.0, 0.9), st.integers(0))
def test_a_fit_finds_what_ticks_were_drawn_from(loss: float, rho: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    up = rng.integers(2, 17, size=60_000)
    chances = np.full(len(up), loss)
    if rho > 0.01:
        spread = (1 - rho) / rho
        chances = rng.beta(loss * spread, (1 - loss) * spread, size=len(up))
    lost = rng.binomial(up, chances)
    found = fit_beta_binomial(Ticks(up=up, lost=lost, tick_s=300))
    assert found.loss == pytest.approx(loss, abs=0.01)
    assert found.rho == pytest.approx(rho if rho > 0.01 else 0, abs=0.05)


def test_ticks_with_one_node_up_say_nothing_about_two() -> None:
    up, lost = np.array([1, 1, 4, 4, 4, 4]), np.array([1, 1, 4, 0, 0, 0])
    assert fit_beta_binomial(Ticks(up=up, lost=lost, tick_s=60)) == BetaBinomial(loss=0.25, rho=1)


@pytest.mark.parametrize(
    ("up", "lost", "message"),
    [
        ([1, 1], [0, 1], "two or more nodes up: there are none"),
        ([4, 4], [0, 0], "needs losses: 0 of 8"),
        ([4, 4], [4, 4], "needs losses: 8 of 8"),
    ],
)
def test_a_fit_needs_losses(up: list[int], lost: list[int], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        fit_beta_binomial(Ticks(up=np.array(up), lost=np.array(lost), tick_s=60))


@settings(deadline=None)
@given(st.floats(0, 0.5), st.floats(0.001, 0.3), st.integers(2, 64))
def test_a_common_shock_is_found_from_how_often_any_and_all_go(
    shock: float, private: float, nodes: int
) -> None:
    model = CommonShock(shock=shock, private=private)
    assume(model.p_any(nodes) < 0.999)
    found = fit_common_shock(nodes=nodes, p_any=model.p_any(nodes), p_all=model.p_all(nodes))
    assert found.shock == pytest.approx(shock, abs=1e-6)
    assert found.private == pytest.approx(private, abs=1e-6)
    lost = found.lost(nodes)
    assert (1 - lost[0], lost[-1]) == pytest.approx((model.p_any(nodes), model.p_all(nodes)))


def test_a_common_shock_fits_what_was_seen_of_sixteen_nodes() -> None:
    """P(any) .046 and P(all) .0278 were seen; small losses are what a beta-binomial overstates."""
    found = fit_common_shock(nodes=16, p_any=0.046, p_all=0.02778)
    assert found.p_any(16) == pytest.approx(0.046)
    assert found.p_all(16) == pytest.approx(0.02778)
    assert 0 < found.private < 0.002


@pytest.mark.parametrize(("p_any", "p_all"), [(0.1, 0.2), (0.9, 1e-9)])
def test_a_common_shock_that_cannot_be_is_refused(p_any: float, p_all: float) -> None:
    with pytest.raises(ValueError, match=r"4 nodes can lose all with a probability from"):
        fit_common_shock(nodes=4, p_any=p_any, p_all=p_all)


@settings(deadline=None)
@given(losses, st.floats(0, 1))
def test_a_shared_shock_gives_two_pools_that_correlation(loss: float, correlation: float) -> None:
    shock = shared(loss=loss, correlation=correlation)
    own = 1 - (1 - loss) / (1 - shock) if shock < 1 else 0.0
    both = shock + (1 - shock) * own**2
    assert (both - loss**2) / (loss * (1 - loss)) == pytest.approx(correlation, abs=1e-9)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(st.floats(0, 0.4), min_size=5, max_size=5),
    st.floats(0, 0.3),
    st.integers(0),
)
def test_monte_carlo_agrees_with_nested_shocks(
    nodes: list[int], chances: list[float], private: float, seed: int
) -> None:
    """A shock over cells 0 and 1, one over 1 and 2, and one of each cell's own."""
    sets = [{0, 1}, {1, 2}, {0}, {1}, {2}]
    shocks = [
        Shock(probability=chance, cells=frozenset(cells))
        for chance, cells in zip(chances, sets, strict=True)
    ]
    lost = lost_under(nodes, shocks, [private] * 3)
    rng = np.random.default_rng(seed)
    number = 100_000
    gone = np.zeros(number, dtype=np.int64)
    hits = [rng.random(number) < chance for chance in chances]
    for cell, count in enumerate(nodes):
        struck = np.any([hit for hit, cells in zip(hits, sets, strict=True) if cell in cells], 0)
        gone += np.where(struck, count, rng.binomial(count, private, size=number))
    assert lost.sum() == pytest.approx(1)
    for at_least in range(1, sum(nodes) + 1):
        assert lost[at_least:].sum() == pytest.approx(np.mean(gone >= at_least), abs=0.007)


@settings(deadline=None)
@given(st.integers(1, 20), st.floats(0, 1))
def test_effective_pools_lie_between_one_and_all(number: int, correlation: float) -> None:
    matrix = np.full((number, number), correlation)
    np.fill_diagonal(matrix, 1.0)
    expected = number / (1 + (number - 1) * correlation)
    assert effective_pools(matrix) == pytest.approx(expected)
    assert 1 - 1e-9 <= expected <= number


def test_nine_zones_are_worth_three() -> None:
    """Correlations .43 in a region, .14 across: 3.28 was computed from each pair's own."""
    regions = [0] * 4 + [1] * 3 + [2] * 2
    matrix = np.array([[0.43 if a == b else 0.14 for a in regions] for b in regions])
    np.fill_diagonal(matrix, 1.0)
    assert effective_pools(matrix) == pytest.approx(3.28, rel=0.02)
    assert effective_pools(matrix[:1, :1]) == 1


def test_weights_count_as_shares() -> None:
    matrix = np.eye(2)
    assert effective_pools(matrix, np.array([0.75, 0.25])) == pytest.approx(1 / 0.625)
    with pytest.raises(ValueError, match="together 1"):
        effective_pools(matrix, np.array([0.5, 0.6]))


def test_correlations_are_of_rows_that_change() -> None:
    rows = np.array([[1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
    assert correlations(rows) == pytest.approx(np.array([[1, 1, -1], [1, 1, -1], [-1, -1, 1]]))
    with pytest.raises(TraceError, match="pool 1 always had 3 nodes"):
        correlations(np.array([[1, 0], [3, 3]]))
