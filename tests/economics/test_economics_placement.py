"""Where nodes go, what their loss would leave, and how likely that is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chaosspot import toml
from chaosspot.content import content_root
from chaosspot.economics.placement import Losses, Placement, Pool, Survival, survivals
from chaosspot.economics.placing import Choice, choose, fitted, rows
from chaosspot.economics.prices import of_placement
from chaosspot.economics.risks import even_spreads, mtbi_s, risks
from chaosspot.economics.spreading import PlacementError, spread
from chaosspot.toml import FileError
from chaosspot.traces import load

FIXTURES = content_root() / "fixtures" / "economics"
LOSSES = Losses(tick_s=300, loss=0.044808, rho=0.859, source="16 V100 launch probes")


def pool(zone: str, price: float = 1.0, family: str = "p3", **changes: Any) -> Pool:
    return Pool(zone=zone, family=family, region="r", per_node_h=price, **changes)


def job(*pools: Pool, nodes: int = 16, min_nodes: int = 8, **changes: Any) -> Placement:
    given = {
        "on_demand_per_node_h": 3.0,
        "price_source": "a test",
        "losses": LOSSES,
        "nodes": nodes,
        "min_nodes": min_nodes,
    }
    return Placement(pool=pools, **(given | changes))


def filled(placement: Placement) -> dict[str, int]:
    return {p.name: p.nodes for p in placement.pool if p.nodes}


def test_the_cheapest_spread_that_survives_a_zone() -> None:
    placed = spread(job(pool("a", 1.0), pool("b", 1.2), pool("c", 1.5)))
    assert filled(placed) == {"a p3": 8, "b p3": 8}


def test_what_must_be_left_decides_how_far_it_is_spread() -> None:
    plan = job(pool("a", 1.0), pool("b", 1.2), pool("c", 1.5), min_nodes=12)
    with pytest.raises(
        PlacementError,
        match="no spread of 16 spot nodes survives the loss of any one zone: 12 of 16",
    ):
        spread(plan)
    four = replace(plan, pool=(*plan.pool, pool("d", 2.0)))
    assert filled(spread(four)) == {"a p3": 4, "b p3": 4, "c p3": 4, "d p3": 4}
    assert filled(spread(replace(plan, min_nodes=4))) == {"a p3": 12, "b p3": 4}


def test_pools_of_one_price_share_evenly_and_no_more_are_used_than_needed() -> None:
    placed = spread(job(pool("a"), pool("b"), pool("c"), min_nodes=2))
    assert filled(placed) == {"a p3": 8, "b p3": 8}


def test_a_pool_is_not_filled_beyond_its_depth() -> None:
    placed = spread(job(pool("a", depth_nodes=3), pool("b", 2.0), pool("c", 3.0)))
    assert filled(placed) == {"a p3": 3, "b p3": 8, "c p3": 5}
    with pytest.raises(PlacementError, match="which hold 7"):
        spread(job(pool("a", depth_nodes=3), pool("b", depth_nodes=4)))


def test_one_copy_survives_no_zone() -> None:
    with pytest.raises(PlacementError, match="has 1 copies"):
        spread(job(pool("a"), pool("b"), redundancy=1))


def test_a_family_is_survived_only_if_another_has_enough() -> None:
    one = job(pool("a"), pool("b"), pool("c", 2.0, family="g5"))
    assert filled(spread(one)) == {"a p3": 8, "b p3": 8}
    both = spread(one, survive=("zone", "family"))
    assert sorted(filled(both).values()) == [8, 8]
    assert filled(both)["c g5"] == 8
    with pytest.raises(PlacementError, match="loss of any one family"):
        spread(job(pool("a"), pool("b")), survive=("family",))


def test_the_hybrid_rule_reserves_coordinators_and_critical_stages() -> None:
    plan = job(
        pool("a"),
        pool("b"),
        pool("a", 2.0, node_class="reserved"),
        coordinators=1,
        critical_stages=2,
        nodes_per_stage=2,
    )
    placed = spread(plan)
    assert {(p.zone, p.node_class): p.nodes for p in placed.pool} == {
        ("a", "spot"): 6,
        ("b", "spot"): 6,
        ("a", "reserved"): 5,
    }
    assert placed.placed
    with pytest.raises(PlacementError, match="5 nodes belong on reserved pools, which hold 4"):
        spread(replace(plan, pool=(*plan.pool[:2], replace(plan.pool[2], depth_nodes=4))))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["p3", "g5"]),
            st.floats(0.5, 2),
            st.integers(1, 20),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda drawn: drawn[:2],
    ),
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(1, 3),
    st.sampled_from([("zone",), ("family",), ("zone", "family")]),
)
def test_whatever_the_rule_chooses_survives_and_fits(
    drawn: list[tuple[str, str, float, int]],
    nodes: int,
    least: int,
    redundancy: int,
    survive: tuple[Any, ...],
) -> None:
    assume(least <= nodes)
    pools = [pool(zone, price, family, depth_nodes=depth) for zone, family, price, depth in drawn]
    plan = job(*pools, nodes=nodes, min_nodes=least, redundancy=redundancy)
    try:
        placed = spread(plan, survive=survive)
    except PlacementError:
        return
    assert placed.placed
    for kind in survive:
        shares: dict[str, int] = {}
        for p in placed.pool:
            assert p.nodes <= (p.depth_nodes or 0)
            shares[getattr(p, kind)] = shares.get(getattr(p, kind), 0) + p.nodes
        assert nodes - max(shares.values()) >= least
    assert all(s.survives for s in survivals(placed) if s.kind in survive)


def found(placement: Placement, kind: str, name: str) -> Survival:
    return next(s for s in survivals(placement) if (s.kind, s.name) == (kind, name))


def test_what_redundancy_survives_the_loss_of_a_family_in_two_zones() -> None:
    placement = job(
        pool("a", nodes=4), pool("b", nodes=4), pool("c", family="g5", nodes=8), redundancy=2
    )
    lost = found(placement, "family", "p3")
    assert (lost.lost_nodes, lost.left_nodes, lost.needs_copies) == (8, 8, 3)
    assert (lost.state_survives, lost.survives) == (False, False)
    assert found(replace(placement, redundancy=3), "family", "p3").survives
    assert found(placement, "family", "g5").survives


def test_a_family_in_every_zone_takes_every_copy() -> None:
    lost = found(job(pool("a", nodes=8), pool("b", nodes=8), redundancy=9), "family", "p3")
    assert (lost.needs_copies, lost.survives) == (None, False)


@pytest.mark.parametrize(
    ("m", "p_any", "p_ge8", "p_all"),
    [
        (1, 0.0663, 0.04494, 0.02716),
        (2, 0.1189, 0.06036, 0.0009241),
        (4, 0.2067, 0.00682, 1.364e-6),
        (8, 0.3412, 0.00014, 5.101e-12),
        (16, 0.5197, 0.0, 2.633e-22),
    ],
)
def test_sixteen_nodes_over_independent_zones(
    m: int, p_any: float, p_ge8: float, p_all: float
) -> None:
    """Spreading makes it less likely that all go, more likely that any goes."""
    risk = next(r for r in even_spreads(16, LOSSES, at_least=8, most=16) if r.pools == m)
    assert risk.p_any == pytest.approx(p_any, rel=2e-3)
    assert risk.p_at_least == pytest.approx(p_ge8, rel=5e-3, abs=5e-6)
    assert risk.p_all == pytest.approx(p_all, rel=1e-2)
    assert risk.mean_lost == pytest.approx(0.717, abs=5e-4)


def test_three_models_stand_side_by_side_and_lose_as_many_on_average() -> None:
    losses = replace(LOSSES, same_family=0.41)
    found = risks(job(pool("a", nodes=8), pool("b", nodes=8), losses=losses), at_least=8)
    alone, apart, shocks = found
    assert [r.model for r in found] == ["independent nodes", "independent pools", "common shocks"]
    assert alone.p_all < 1e-20
    assert apart.p_all == pytest.approx(0.0009241, rel=1e-2)
    assert shocks.p_all > 10 * apart.p_all
    for risk in found:
        assert risk.mean_lost == pytest.approx(16 * LOSSES.loss)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0.01, 0.3), st.floats(0, 0.9))
def test_the_ends_of_pools_correlation(same: float, loss: float, rho: float) -> None:
    losses = replace(LOSSES, loss=loss, rho=rho, same_family=same)
    shocks = risks(job(pool("a", nodes=8), pool("b", nodes=8), losses=losses), at_least=8)[2]
    apart = risks(
        job(pool("a", nodes=8), pool("b", nodes=8), losses=replace(losses, same_family=0.0)),
        at_least=8,
    )[2]
    assert shocks.p_all >= apart.p_all * (1 - 1e-9)
    assert shocks.p_any <= apart.p_any * (1 + 1e-9)
    assert shocks.mean_lost == pytest.approx(16 * loss)
    if rho == 0:
        alone = risks(job(pool("a", nodes=16), losses=losses), at_least=8)[0]
        assert shocks.p_any == pytest.approx(alone.p_any)


def test_correlations_cannot_explain_more_than_there_is() -> None:
    losses = replace(LOSSES, same_family=0.9, same_zone=0.9)
    pools = (pool("a", nodes=4), pool("b", nodes=4), pool("a", family="g5", nodes=4))
    with pytest.raises(ValueError, match=r"same_zone = 0.9, same_family = 0.9: together more"):
        risks(job(*pools, nodes=12, losses=losses), at_least=1)


def test_a_gang_is_interrupted_by_any_loss() -> None:
    one = even_spreads(16, LOSSES, at_least=1, most=1)[0]
    assert mtbi_s(one, tick_s=300) == pytest.approx(300 / 0.0686, rel=5e-3)


def test_where_nothing_is_lost_nothing_is_interrupted() -> None:
    never = risks(job(pool("a", nodes=16), losses=replace(LOSSES, loss=0.0)), at_least=1)
    always = risks(job(pool("a", nodes=16), losses=replace(LOSSES, loss=1.0)), at_least=1)
    assert [mtbi_s(risk, tick_s=300) for risk in never] == [math.inf] * 3
    assert [mtbi_s(risk, tick_s=300) for risk in always] == [300] * 3


def test_effective_pools_of_a_placement() -> None:
    losses = replace(LOSSES, same_family=0.41, same_zone=0.1)
    placement = job(pool("a", nodes=8), pool("b", nodes=8), losses=losses)
    assert placement.effective_pools() == pytest.approx(2 / 1.41)
    apart = job(pool("a", nodes=8), pool("b", family="g5", nodes=8), losses=losses)
    assert apart.effective_pools() == pytest.approx(2)


def test_the_shipped_example_is_placed_as_its_comment_says() -> None:
    plan = toml.read(FIXTURES / "three-zones.toml", Placement)
    done = choose(plan, Choice())
    assert filled(done.placement)["us-west-2a p3.2xlarge"] == 8
    assert done.hybrid is not None
    assert done.hybrid.reserved_share == pytest.approx(1 / 17)
    assert toml.loads(toml.dumps(done.placement), Placement) == done.placement
    assert of_placement(done.placement).discount == pytest.approx(1 - 1.07 / 3.06)
    shown = dict(rows(done))
    assert shown["loss of zone us-west-2a"].startswith("survived: 8 nodes, 8 left")
    assert "no redundancy surely holds" in shown["loss of family p3.2xlarge"]
    kept = choose(done.placement, Choice(keep=True))
    assert kept == done
    with pytest.raises(ValueError, match="0 of 17 nodes are placed"):
        choose(plan, Choice(keep=True))


def test_losses_can_be_fitted_to_a_trace() -> None:
    plan = toml.read(FIXTURES / "three-zones.toml", Placement)
    done = fitted(plan, load(FIXTURES / "eight-nodes.csv"), tick_s=600)
    assert done.losses.loss == pytest.approx(26 / (288 * 7.8), rel=0.05)
    assert done.losses.rho > 0.3
    assert "eight-nodes.csv, ticks of 600 s" in done.losses.source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("min_nodes = 8 -> min_nodes = 17", "min_nodes = 17: at most nodes = 16"),
        ("redundancy = 2 -> redundancy = 0", "redundancy = 0: at least 1"),
        ("rho = 0.859 -> rho = 1.5", "rho = 1.5: at least 0 and at most 1"),
        ("per_node_h = 1.21 -> per_node_h = -1.0", r"per_node_h = -1\.0: above 0"),
        ("depth_nodes = 8 -> nodes = 9\ndepth_nodes = 8", "nodes = 9: more than depth_nodes = 8"),
        ("us-west-2b -> us-west-2a", "two pools are us-west-2a p3.2xlarge spot"),
        ("depth_nodes = 4 -> currency = 'EUR'", "different currencies: USD, EUR"),
        ("tick_s = 300.0 -> ticks = 3", "did you mean 'tick_s'"),
        ('node_class = "reserved" -> node_class = "spare"', "node_class.*valid"),
        ("critical -> critical", None),
    ],
)
def test_placements_that_cannot_be_are_refused(change: str, message: str | None) -> None:
    text = (FIXTURES / "three-zones.toml").read_text()
    old, new = change.split(" -> ")
    changed = text.replace(old, new)
    if message is None:
        assert toml.loads(changed, Placement).nodes == 16
        return
    with pytest.raises(FileError, match=message):
        toml.loads(changed, Placement)
