from pathlib import Path

import drawn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot import content, schedule, toml
from chaosspot.misbehaviour import BlackHole, FarFuture, MisbehaviourKind, Skew, TokenKill
from chaosspot.schedule import (
    COORDINATOR,
    ClusterSpec,
    FileError,
    Group,
    Grow,
    Kill,
    Misbehave,
    Notice,
    Pause,
    Resolved,
    Schedule,
    Target,
    Trigger,
    choose,
    delay,
)

EIGHT = ClusterSpec(group=(Group(count=6, zones=("a", "b")), Group(count=2, pool="reserved")))
NOW = Trigger(at_s=0.0)


@given(drawn.schedules)
def test_writing_and_reading_a_schedule_is_the_identity(plan: Schedule) -> None:
    text = toml.dumps(plan)
    assert toml.loads(text, Schedule) == plan
    assert toml.dumps(toml.loads(text, Schedule)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('tite = "x"', "unknown key 'tite'; did you mean 'title'?"),
        ("x =", "not TOML"),
        ('seed = "x"', "seed = 'x'"),
        ("[[cluster.group]]\ncount = 0", "cluster.group[0].count = 0"),
        ('[[fault]]\nkind = "kil"\non = {at_s = 1}', "fault[0].kind = 'kil'"),
        ('[[fault]]\nkind = "kill"', "missing required field `on`"),
        ('[[fault]]\nkind = "kill"\non = {at_sec = 1}', "'at_sec' in 'fault[0].on'; did you mean"),
        ('[[fault]]\nkind = "kill"\non = {at_s = -3}', "fault[0].on.at_s = -3"),
        ('[[fault]]\nkind = "kill"\non = {at_s = nan}', "at_s = nan"),
        ('[[fault]]\nkind = "kill"\non = {at_s = inf}', "at_s must be finite, not inf"),
        ('[[fault]]\nkind = "kill"\non = {at_s = 1, at_step = 1}', "not at_s and at_step"),
        ('[[fault]]\nkind = "kill"\non = {}', "exactly one of at_s, at_step, event, point"),
        ('[[fault]]\nkind = "kill"\non = {at_s = 1, nth = 2}', "nth = 2 has no meaning with at_s"),
        ('[[fault]]\nkind = "notice"\non = {at_s = 1}\nlead = 2', "did you mean 'lead_s'?"),
        (
            '[[fault]]\nkind = "notice"\non = {at_s = 1}\nlead_s = 2\nkill_after_s = 3',
            "kill_after_s = 3.0 is after lead_s = 2.0",
        ),
        (
            '[[fault]]\nkind = "kill"\non = {at_s = 1}\ntarget = {count = 1, fraction = 0.5}',
            "count = 1 and fraction = 0.5",
        ),
    ],
)
def test_a_mistake_gives_one_error_that_shows_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        schedule.load(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target(zone="z"), "matches no node"),
        (Target(nodes=("node-9",)), "no node 'node-9'"),
        (Target(count=9, pool="any"), "count = 9: only 8 match"),
        (Target(count=7), "count = 7: only 6 match; pool = 'reserved' or 'any' would let it take"),
        (Target(zone="b", pool="reserved"), "matches no node"),
    ],
)
def test_a_target_that_cannot_be_met_is_refused(target: Target, message: str) -> None:
    with pytest.raises(FileError, match=message):
        Schedule(cluster=EIGHT, fault=(Kill(on=NOW, target=target),)).check()


@pytest.mark.parametrize(
    ("how", "clouds", "what"),
    [
        (TokenKill(after_s=1.0), ("aws",), "tokens"),
        (FarFuture(), ("aws", "azure"), "notices with a time"),
        (Skew(skew_s=90.0), ("aws", "azure"), "notices with a time"),
        (BlackHole(), ("aws", "gcp", "azure"), ""),
    ],
)
def test_a_misbehaviour_that_a_cloud_has_no_occasion_for_is_refused(
    how: MisbehaviourKind, clouds: tuple[str, ...], what: str
) -> None:
    for cloud in ("aws", "gcp", "azure"):
        cluster = ClusterSpec(cloud=cloud)  # type: ignore[arg-type]
        plan = Schedule(cluster=cluster, fault=(Misbehave(on=NOW, how=how),))
        if cloud in clouds:
            plan.check()
            continue
        with pytest.raises(FileError, match=f"it needs {what}, which cloud = '{cloud}'"):
            plan.check()


def test_what_spares_a_node_has_no_kill() -> None:
    with pytest.raises(ValueError, match=r"kill_after_s = 5\.0 has no meaning with spares"):
        Notice(on=NOW, spares=True, lead_s=30.0, kill_after_s=5.0)


def test_a_replacement_may_be_named_before_it_exists() -> None:
    Schedule(
        cluster=EIGHT,
        fault=(
            Kill(on=NOW, replace_after_s=1.0),
            Kill(on=NOW, target=Target(nodes=("node-8",))),
        ),
    ).check()


def test_everything_in_the_catalogue_can_be_read_and_says_what_it_is() -> None:
    for name in content.names("faults"):
        _, plan = schedule.load(name)
        assert plan.title, name
        assert plan.source.startswith("https://"), name
        assert plan.imitates, name
        assert plan.does_not_prove, name
        assert plan.fault, name


def test_nodes_take_their_zones_round_robin_and_their_groups_in_order() -> None:
    nodes = EIGHT.nodes()
    assert [node.name for node in nodes] == [f"node-{i}" for i in range(8)]
    assert [node.zone for node in nodes] == ["a", "b", "a", "b", "a", "b", "a", "a"]
    assert [node.pool for node in nodes][5:] == ["spot", "reserved", "reserved"]


@given(drawn.clusters, st.integers(3, 40))
def test_a_cluster_of_another_size_has_that_size_and_the_same_groups(
    cluster: ClusterSpec, count: int
) -> None:
    resized = cluster.resized(count)
    assert len(resized.nodes()) == count
    assert [g.family for g in resized.group] == [g.family for g in cluster.group]


def test_a_cluster_cannot_have_fewer_nodes_than_groups() -> None:
    with pytest.raises(ValueError, match="nodes = 1: this cluster has 2 groups"):
        EIGHT.resized(1)


LIVE = (*EIGHT.nodes(), COORDINATOR)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(nodes=("node-3", "node-1")), {"node-1", "node-3"}),
        (Target(zone="b"), {"node-1", "node-3", "node-5"}),
        (Target(pool="reserved"), {"node-6", "node-7"}),
        (Target(role="coordinator"), {"coordinator"}),
        (Target(), {f"node-{i}" for i in range(6)}),
        (Target(zone="a"), {"node-0", "node-2", "node-4"}),
        (Target(pool="any"), {f"node-{i}" for i in range(8)}),
        (Target(pool="any", zone="a"), {"node-0", "node-2", "node-4", "node-6", "node-7"}),
        (Target(nodes=("node-7",)), {"node-7"}),
    ],
)
def test_a_target_takes_what_matches(target: Target, expected: set[str]) -> None:
    """Reserved nodes only where their pool, their names or the coordinator's role say so."""
    assert set(choose(Kill(on=NOW, target=target), 0, 1, LIVE)) == expected


def test_what_takes_no_node_may_be_made_to_reserved_ones() -> None:
    everyone = {f"node-{i}" for i in range(8)}
    assert set(choose(Pause(on=NOW, target=Target()), 0, 1, LIVE)) == everyone
    assert choose(Pause(on=NOW), 0, 1, LIVE, "node-7") == ["node-7"]


def test_a_reserved_node_that_pulls_a_trigger_is_not_taken() -> None:
    (hit,) = choose(Kill(on=NOW), 0, 1, LIVE, "node-7")
    assert hit in {f"node-{i}" for i in range(6)}


@pytest.mark.parametrize("target", [None, Target()])
def test_a_fault_that_could_take_reserved_nodes_alone_has_to_say_so(target: Target | None) -> None:
    reserved = ClusterSpec(group=(Group(count=2, pool="reserved"),))
    with pytest.raises(FileError, match="'reserved' or"):
        Schedule(cluster=reserved, fault=(Kill(on=NOW, target=target),)).check()
    Schedule(cluster=reserved, fault=(Pause(on=NOW, target=target),)).check()


def test_who_is_being_taken_already_comes_last() -> None:
    fault = Notice(on=NOW, target=Target(count=2))
    first = choose(fault, 0, 1, LIVE)
    second = choose(fault, 0, 1, LIVE, going=first)
    assert not set(first) & set(second)
    left = [node for node in LIVE if node.name in (*first, second[0])]
    assert set(choose(fault, 0, 1, left, going=first)) > {second[0]}


def test_nodes_that_come_later_count() -> None:
    grow = Grow(on=NOW, count=2)
    Schedule(cluster=EIGHT, fault=(grow, Kill(on=NOW, target=Target(count=8)))).check()
    with pytest.raises(FileError, match="count = 9"):
        Schedule(cluster=EIGHT, fault=(grow, Kill(on=NOW, target=Target(count=9)))).check()


@pytest.mark.parametrize(
    ("target", "count"),
    [(Target(count=3), 3), (Target(fraction=0.125), 1), (Target(fraction=0.5), 3), (None, 1)],
)
def test_a_target_takes_as_many_as_it_says(target: Target | None, count: int) -> None:
    assert len(choose(Kill(on=NOW, target=target), 0, 1, LIVE)) == count


def test_without_a_target_the_node_that_pulled_the_trigger_is_hit() -> None:
    assert choose(Kill(on=NOW), 0, 1, LIVE, "node-4") == ["node-4"]


@given(st.integers(0, 2**32), st.integers(0, 3), st.permutations(LIVE))
def test_the_seed_alone_decides_who_is_hit(seed: int, index: int, live: list) -> None:
    fault = Kill(on=Trigger(at_s=1.0, jitter_s=2.0), target=Target(count=3))
    assert choose(fault, index, seed, live) == choose(fault, index, seed, LIVE)
    assert 0.0 <= delay(fault, index, seed) < 2.0


def test_seeds_and_faults_differ_in_whom_they_hit() -> None:
    fault = Kill(on=NOW, target=Target(count=1))
    assert len({choose(fault, 0, seed, LIVE)[0] for seed in range(100)}) == 6
    assert len({choose(fault, index, 1, LIVE)[0] for index in range(100)}) == 6


def test_a_replay_hits_what_the_run_hit_as_far_as_it_lives() -> None:
    resolved = Resolved(nodes=("node-5", "gone"), delay_s=1.5, injected_s=3.0, step=9)
    fault = Kill(on=Trigger(at_s=1.0, jitter_s=2.0), target=Target(zone="a"), resolved=resolved)
    assert choose(fault, 0, 1, LIVE) == ["node-5"]
    assert delay(fault, 0, 99) == 1.5
