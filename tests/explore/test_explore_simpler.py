"""What a shrinker tries is valid and simpler, and leads to the smallest."""

from __future__ import annotations

from hypothesis import given, settings

from chaosspot import toml
from chaosspot.explore import schedules
from chaosspot.explore.fairness import supplied
from chaosspot.explore.simpler import simpler, size
from chaosspot.schedule import (
    ClusterSpec,
    Group,
    Kill,
    Notice,
    Schedule,
    Target,
    Trigger,
)


@settings(max_examples=25, deadline=None)
@given(schedules())
def test_each_is_valid_and_simpler(plan: Schedule) -> None:
    for candidate in simpler(plan):
        candidate.check()
        assert size(candidate) < size(plan)
        assert toml.loads(toml.dumps(candidate), Schedule) == candidate
        assert supplied(candidate, min_alive=1) == candidate


def smallest(plan: Schedule) -> tuple[Schedule, int]:
    """Where it ends when every simpler schedule fails as well, and after how many."""
    for tries in range(100):
        candidate = next(simpler(plan), None)
        if candidate is None:
            return plan, tries
        plan = candidate
    raise AssertionError("it does not end")


@settings(max_examples=15, deadline=None)
@given(schedules(kinds=("kill", "notice", "terminate")))
def test_where_everything_fails_one_kill_at_the_first_step_is_left(plan: Schedule) -> None:
    left, tries = smallest(plan)
    (fault,) = left.fault
    assert isinstance(fault, Kill)
    assert fault.on == Trigger(at_step=1)
    assert fault.target is None
    assert len(left.cluster.nodes()) == 1
    assert tries <= 30


def test_a_fault_is_left_out_before_anything_else_is_tried() -> None:
    on = Trigger(event="snapshot.durable", nth=4)
    kill, notice = Kill(on=on), Notice(on=on, target=Target(zone="b"))
    cluster = ClusterSpec(group=(Group(count=4, zones=("a", "b")),))
    first, second, *_ = simpler(Schedule(cluster=cluster, fault=(kill, notice)))
    assert [first.fault, second.fault] == [(kill,), (notice,)]


def test_nodes_go_no_lower_than_they_may() -> None:
    plan = Schedule(
        cluster=ClusterSpec(group=(Group(count=5),)), fault=(Kill(on=Trigger(at_s=1.0)),)
    )
    assert min(len(p.cluster.nodes()) for p in simpler(plan, min_nodes=3)) == 3
