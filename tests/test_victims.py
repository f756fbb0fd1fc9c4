"""Victims that are drawn: the seeds' draws together have the distribution of the formulas.

Seeds are fixed, so that nothing here is random; the bounds are what true draws would exceed about
once in ten thousand such tests.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from chaosspot.schedule import (
    BetaBinomial,
    ClusterSpec,
    CommonShock,
    FileError,
    Group,
    Kill,
    Resolved,
    Schedule,
    Target,
    Trigger,
    choose,
)
from chaosspot.victims import Correlation, p_at_least

NOW = Trigger(at_s=0.0)
SEEDS = 6000
SIGMAS = 3.9  # two-sided, once in ten thousand
CLUSTER = ClusterSpec(group=(Group(count=12, zones=("a", "b")), Group(count=2, pool="reserved")))
NODES = CLUSTER.nodes()
SPOT = [node for node in NODES if node.pool == "spot"]

MODELS = [
    BetaBinomial(loss=0.3, rho=0.5),
    BetaBinomial(loss=0.1, rho=0.0),
    BetaBinomial(loss=0.2, rho=0.9),
    CommonShock(shock=0.2, private=0.1),
    CommonShock(shock=0.1),
]


def kill(model: Correlation) -> Kill:
    return Kill(on=NOW, target=Target(correlation=model))


@functools.cache
def draws(model: Correlation) -> np.ndarray:
    """A row a seed, a column a spot node: whether it went."""
    fault = kill(model)
    taken = (set(choose(fault, 0, seed, NODES)) for seed in range(SEEDS))
    return np.array([[node.name in names for node in SPOT] for names in taken], dtype=float)


def loss_and_rho(model: Correlation) -> tuple[float, float]:
    """Of one node, and of two of one group."""
    if isinstance(model, BetaBinomial):
        return model.loss, model.rho
    loss = 1 - (1 - model.shock) * (1 - model.private)
    both = model.shock + (1 - model.shock) * model.private**2
    return loss, (both - loss**2) / (loss * (1 - loss))


@pytest.mark.parametrize("model", MODELS)
def test_each_node_goes_as_often_as_the_model_says(model: Correlation) -> None:
    loss, _ = loss_and_rho(model)
    rates = draws(model).mean(axis=0)
    assert rates == pytest.approx(loss, abs=SIGMAS * math.sqrt(loss * (1 - loss) / SEEDS))


@pytest.mark.parametrize("model", MODELS)
def test_how_many_of_a_zone_go_has_the_distribution_of_the_model(model: Correlation) -> None:
    """Chi-square, over numbers expected at least 5 times."""
    zone = np.array([node.zone == "a" for node in SPOT])
    lost = draws(model)[:, zone].sum(axis=1).astype(int)
    expected = SEEDS * np.array(model.lost(6))
    seen = np.bincount(lost, minlength=7)
    usual = expected >= 5
    assert seen[~usual].sum() <= expected[~usual].sum() + 15
    freedom = int(usual.sum())
    chi2 = (((seen - expected) ** 2)[usual] / expected[usual]).sum()
    assert chi2 < freedom + SIGMAS * math.sqrt(2 * freedom) + 5  # its tail is the longer one
    loss, rho = loss_and_rho(model)
    variance = 6 * loss * (1 - loss) * (1 + 5 * rho)
    spread = math.sqrt(((expected / SEEDS) @ (np.arange(7) - 6 * loss) ** 4 - variance**2) / SEEDS)
    assert lost.var() == pytest.approx(variance, abs=SIGMAS * spread)


@pytest.mark.parametrize("model", MODELS)
def test_two_nodes_of_a_zone_correlate_and_two_of_different_zones_do_not(
    model: Correlation,
) -> None:
    """The mean over all pairs: bounded as one pair's, which is the larger bound."""
    _, rho = loss_and_rho(model)
    found = np.corrcoef(draws(model).T)
    pairs = list(itertools.combinations(range(len(SPOT)), 2))
    within = [found[a, b] for a, b in pairs if SPOT[a].zone == SPOT[b].zone]
    across = [found[a, b] for a, b in pairs if SPOT[a].zone != SPOT[b].zone]
    loss, _ = loss_and_rho(model)
    bound = SIGMAS * math.sqrt((1 + rho * (1 - 2 * loss) ** 2 / (loss * (1 - loss))) / SEEDS)
    assert np.mean(within) == pytest.approx(rho, abs=bound)
    assert np.mean(across) == pytest.approx(0, abs=SIGMAS / math.sqrt(SEEDS))


def test_all_nodes_may_be_one_group() -> None:
    model = BetaBinomial(loss=0.3, rho=0.8, by="all")
    a, b = (next(i for i, n in enumerate(SPOT) if n.zone == zone) for zone in "ab")
    found = draws(model)
    assert np.corrcoef(found[:, a], found[:, b])[0, 1] == pytest.approx(0.8, abs=0.05)


def test_at_least_one_is_the_distribution_given_that_any_goes() -> None:
    free, given = BetaBinomial(loss=0.1, rho=0.5), BetaBinomial(loss=0.1, rho=0.5, at_least=1)
    p_any = p_at_least(given, SPOT)
    assert p_any == pytest.approx(1 - free.lost(6)[0] ** 2)
    lost = draws(given).sum(axis=1)
    assert lost.min() == 1
    mean = 12 * 0.1 / p_any
    assert lost.mean() == pytest.approx(mean, abs=SIGMAS * lost.std() / math.sqrt(SEEDS))
    some = draws(free).sum(axis=1)
    assert (some > 0).mean() == pytest.approx(p_any, abs=SIGMAS * 0.5 / math.sqrt(SEEDS))


def test_reserved_nodes_are_drawn_only_where_the_target_says_so() -> None:
    shock = CommonShock(shock=1.0)
    assert set(choose(kill(shock), 0, 1, NODES)) == {node.name for node in SPOT}
    anyone = Kill(on=NOW, target=Target(pool="any", correlation=shock))
    assert len(choose(anyone, 0, 1, NODES)) == 14


def test_a_draw_depends_on_seed_and_fault_alone() -> None:
    model = BetaBinomial(loss=0.4, rho=0.3)
    assert choose(kill(model), 0, 7, NODES) == choose(kill(model), 0, 7, reversed(NODES))
    of_faults = {tuple(choose(kill(model), index, 7, NODES)) for index in range(50)}
    assert len(of_faults) > 20


def test_a_replay_takes_what_was_drawn_even_if_that_was_nobody() -> None:
    resolved = Resolved(nodes=(), delay_s=0.0, injected_s=1.0, step=3)
    fault = Kill(on=NOW, target=Target(correlation=CommonShock(shock=1.0)), resolved=resolved)
    assert choose(fault, 0, 1, NODES) == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"count": 2}, "count = 2 and correlation exclude another"),
        ({"fraction": 0.5}, "fraction = 0.5 and correlation exclude another"),
    ],
)
def test_how_many_is_said_once(target: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Target(correlation=CommonShock(shock=0.5), **target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "model",
    [
        CommonShock(shock=0.0, at_least=1),
        CommonShock(shock=0.5, at_least=13),
        BetaBinomial(loss=0.001, rho=0.5, at_least=12),
    ],
)
def test_what_is_too_unlikely_to_be_drawn_is_refused(model: Correlation) -> None:
    with pytest.raises(FileError, match=rf"at_least = {model.at_least}: of 12 nodes .* below 0.01"):
        Schedule(cluster=CLUSTER, fault=(kill(model),)).check()
