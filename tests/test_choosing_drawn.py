"""Who is hit, for any target, cluster and seed: what each way of choosing has to keep."""

from __future__ import annotations

import itertools

import drawn
from hypothesis import assume, given
from hypothesis import strategies as st

from chaosspot.correlation import beta_binomial, common_shock
from chaosspot.explore import clusters, faults, targets
from chaosspot.explore.places import most_taken
from chaosspot.nodes import ClusterSpec, Node
from chaosspot.schedule import Kill, Pause, Target, Trigger, choose, delay
from chaosspot.victims import p_at_least, victims

NOW = Trigger(at_s=0.0)
SEEDS = st.integers(0, 2**32)
shares = st.floats(0.0, 1.0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ClusterSpec, Target]:
    cluster = draw(clusters())
    return cluster, draw(targets(cluster=cluster))


@given(cases(), SEEDS, st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_target_takes_who_matches_as_many_as_it_says_in_any_order(
    case: tuple[ClusterSpec, Target], seed: int, index: int, mixed: object
) -> None:
    cluster, target = case
    nodes = cluster.nodes()
    by_name = {node.name: node for node in nodes}
    for fault in (Kill(on=NOW, target=target), Pause(on=NOW, target=target)):
        taken = choose(fault, index, seed, nodes)
        assert len(set(taken)) == len(taken) <= most_taken(target, nodes)
        assert all(fault.may_hit(by_name[name]) for name in taken)
        others = list(nodes)
        mixed.shuffle(others)  # type: ignore[attr-defined]
        assert choose(fault, index, seed, others) == taken
        hittable = sum(map(fault.may_hit, nodes))
        if target.count is not None:
            assert len(taken) == min(target.count, hittable)


@given(cases(), SEEDS)
def test_who_is_not_hit_makes_no_difference_by_going(
    case: tuple[ClusterSpec, Target], seed: int
) -> None:
    cluster, target = case
    assume(target.fraction is None)
    nodes = cluster.nodes()
    fault = Pause(on=NOW, target=target)
    taken = choose(fault, 0, seed, nodes)
    left = [node for node in nodes if node.name in taken]
    assert choose(fault, 0, seed, left) == taken


@given(cases(), SEEDS, st.data())
def test_who_is_going_already_is_taken_only_when_nobody_else_is_left(
    case: tuple[ClusterSpec, Target], seed: int, data: st.DataObject
) -> None:
    cluster, target = case
    nodes = cluster.nodes()
    going = set(data.draw(st.lists(st.sampled_from([node.name for node in nodes]))))
    fault = Pause(on=NOW, target=target)
    taken = choose(fault, 0, seed, nodes, going=going)
    spared = {node.name for node in nodes if fault.may_hit(node)} - set(taken)
    assert not (set(taken) & going and spared - going)


@given(faults(), SEEDS)
def test_a_delay_is_between_what_is_said_and_the_whole_jitter(fault: Kill, seed: int) -> None:
    least_s, jitter_s = fault.on.delay_s, fault.on.jitter_s
    assert least_s <= delay(fault, 0, seed) <= least_s + jitter_s
    assert delay(fault, 0, seed) == delay(fault, 0, seed)


@given(drawn.correlations, st.lists(shares.filter(lambda p: p < 1), min_size=9), clusters())
def test_a_draw_takes_each_group_from_its_front(
    model: object, numbers: list[float], cluster: ClusterSpec
) -> None:
    ranked = cluster.nodes()
    tries = iter(numbers)
    free = type(model)(**{f: getattr(model, f) for f in model.__struct_fields__} | {"at_least": 0})
    taken = victims(free, ranked, lambda *_: next(tries))
    assert len(taken) == len(set(taken))
    by = free.by
    groups: dict[str, list[Node]] = {}
    for node in ranked:
        groups.setdefault("all" if by == "all" else getattr(node, by), []).append(node)
    for group in groups.values():
        names = [node.name for node in group]
        gone = [name for name in names if name in taken]
        assert gone == names[: len(gone)]


@given(st.integers(0, 12), shares, shares)
def test_how_many_go_is_a_distribution_with_the_mean_it_was_given(
    nodes: int, first: float, second: float
) -> None:
    for chances, mean in (
        (beta_binomial(nodes, first, second), nodes * first),
        (common_shock(nodes, first, second), nodes * (first + (1 - first) * second)),
    ):
        assert len(chances) == nodes + 1
        assert all(-1e-12 <= p <= 1 + 1e-9 for p in chances)
        assert abs(sum(chances) - 1) < 1e-6
        assert abs(sum(k * p for k, p in enumerate(chances)) - mean) < 1e-5 * max(1, nodes)


@given(drawn.correlations, clusters())
def test_more_is_never_likelier_than_less(model: object, cluster: ClusterSpec) -> None:
    fields = {f: getattr(model, f) for f in model.__struct_fields__}
    nodes = cluster.nodes()
    chances = [p_at_least(type(model)(**fields | {"at_least": k}), nodes) for k in range(10)]
    assert abs(chances[0] - 1) < 1e-6
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(chances))
    assert all(p == 0 for k, p in enumerate(chances) if k > len(nodes))
