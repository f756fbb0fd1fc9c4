"""Whatever is drawn is a schedule that can be run, and a file gives it back."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import Phase, find, given, seed, settings
from hypothesis import strategies as st

from chaosspot import schedule as s
from chaosspot import toml, trainers
from chaosspot.conductor import unsuited
from chaosspot.conductor.links import check_toxics
from chaosspot.conductor.settled import refuse, settled
from chaosspot.explore import clusters, faults, preemptions, schedules, targets, triggers
from chaosspot.explore.fairness import fair, supplied
from chaosspot.explore.ground import KINDS, Ground, ground_of, nature
from chaosspot.schedule import Kill, Notice, Schedule, Target, Trigger

T = TypeVar("T")
TWO = s.ClusterSpec(group=(s.Group(count=2, zones=("a", "b")),))
QUICK = settings(max_examples=30, deadline=None)
ONE = settings(max_examples=1, database=None, phases=[Phase.generate])


def good(plan: Schedule) -> None:
    plan.check()
    check_toxics(plan, own=False)
    assert toml.loads(toml.dumps(plan), Schedule) == plan


@QUICK
@given(schedules())
def test_every_schedule_can_be_run_and_a_file_gives_it_back(plan: Schedule) -> None:
    good(plan)
    assert 1 <= len(plan.fault) <= 3


@QUICK
@given(st.from_type(Schedule))
def test_hypothesis_knows_schedules_by_their_type(plan: Schedule) -> None:
    good(plan)


@pytest.mark.parametrize("kind", s.FaultKind.__args__)
def test_hypothesis_knows_each_kind_of_fault_by_its_type(kind: type[s.Fault]) -> None:
    assert isinstance(find(st.from_type(kind), lambda _: True, settings=ONE), kind)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(["minimal", "solo", "script", "bucket", "reference", "liar"]))
def test_what_is_drawn_for_a_trainer_can_be_made_to_it(data: st.DataObject, name: str) -> None:
    trainer = trainers.load(name)
    plan = data.draw(schedules(trainer=name))
    assert unsuited(plan, trainer) == ""
    settled(plan, nodes=None, seed=None)
    refuse("drawn", plan, trainer, None)
    good(plan)


@QUICK
@given(preemptions(max_faults=5))
def test_preemptions_are_what_clouds_do(plan: Schedule) -> None:
    good(plan)
    assert 1 <= len(plan.fault) <= 5
    assert {fault.kind for fault in plan.fault} in ({"kill"}, {"notice"})
    assert all(fault.replace_after_s is not None for fault in plan.fault)


@QUICK
@given(preemptions(clusters=(TWO,), max_faults=3))
def test_preemptions_of_one_cluster_share_it(plan: Schedule) -> None:
    good(plan)
    assert plan.cluster == TWO


def drawn(strategy: st.SearchStrategy[T], examples: int) -> list[T]:
    """The same ones every time."""
    plans: list[T] = []

    @seed(1)
    @settings(max_examples=examples, database=None, deadline=None, phases=[Phase.generate])
    @given(strategy)
    def draw(plan: T) -> None:
        plans.append(plan)

    draw()
    return plans


def test_every_kind_of_fault_trigger_and_target_is_drawn() -> None:
    seen = [fault for plan in drawn(schedules(), 250) for fault in plan.fault]
    assert {fault.kind for fault in seen} == set(KINDS)
    when = {
        key for f in seen for key in ("at_s", "at_step", "event", "point") if getattr(f.on, key)
    }
    assert when == {"at_s", "at_step", "event", "point"}


def test_every_way_to_choose_nodes_is_drawn() -> None:
    keys = ("nodes", "count", "fraction", "zone", "family", "pool")
    seen = drawn(targets(coordinator=True), 100)
    assert {key for target in seen for key in keys if getattr(target, key)} == set(keys)
    assert {target.role for target in seen} == {"worker", "coordinator"}


def test_whole_zones_families_and_waves_are_preempted() -> None:
    plans = drawn(preemptions(), 60)
    keys = {k for p in plans for f in p.fault for k in ("zone", "family") if getattr(f.target, k)}
    assert keys == {"zone", "family"}
    waves = [plan for plan in plans if any(fault.on.delay_s > 0 for fault in plan.fault)]
    assert waves
    assert any(len({(f.on.at_step, f.on.at_s) for f in plan.fault}) == 1 for plan in waves)


def test_the_smallest_is_one_kill_of_one_node_at_the_first_step() -> None:
    for strategy in (schedules(), schedules(trainer="minimal"), preemptions()):
        plan = find(strategy, lambda _: True, settings=ONE)
        (fault,) = plan.fault
        assert isinstance(fault, Kill)
        assert fault.on == Trigger(at_step=1)
        assert len(plan.cluster.nodes()) == 1


def test_smaller_means_fewer_earlier_and_on_fewer_nodes() -> None:
    plan = find(
        schedules(kinds=("kill",)),
        lambda p: len(p.fault) == 2 and len(p.cluster.nodes()) >= 2,
        settings=settings(database=None, phases=[Phase.generate, Phase.shrink]),
    )
    assert len(plan.fault) == 2
    assert len(plan.cluster.nodes()) == 2
    assert {f.on for f in plan.fault} == {Trigger(at_step=1)}


@given(st.data(), clusters(min_nodes=2, max_nodes=6))
@QUICK
def test_targets_match_nodes_of_their_cluster(data: st.DataObject, cluster: s.ClusterSpec) -> None:
    target = data.draw(targets(cluster=cluster, max_count=2))
    plan = Schedule(cluster=cluster, fault=(Kill(on=Trigger(at_step=1), target=target),))
    plan.check()
    assert 2 <= len(cluster.nodes()) <= 6


@given(triggers(min_step=5, max_step=9, max_s=1.0, max_nth=2, points=["a.b"]))
@QUICK
def test_triggers_keep_their_bounds(trigger: Trigger) -> None:
    assert trigger.at_step is None or 5 <= trigger.at_step <= 9
    assert trigger.at_s is None or trigger.at_s <= 1.0
    assert trigger.nth <= 2
    assert toml.loads(toml.dumps(trigger), Trigger) == trigger


@given(faults(kinds=("notice",)))
@QUICK
def test_kinds_can_be_chosen(fault: s.Fault) -> None:
    assert isinstance(fault, Notice)


def test_what_leaves_no_node_is_replaced() -> None:
    all_of_them = Kill(on=Trigger(at_step=1), target=Target(role="worker"))
    one = Kill(on=Trigger(at_step=1))
    kept = supplied(Schedule(fault=(one, all_of_them)), min_alive=1)
    assert [f.replace_after_s for f in kept.fault] == [None, 0.5]
    kept = supplied(Schedule(fault=(one, one)), min_alive=3)
    assert [f.replace_after_s for f in kept.fault] == [None, 0.5]


def test_a_trainers_limits_and_those_of_its_healthy_twin_are_left_out() -> None:
    for name in ("minimal", "deaf"):
        ground = ground_of(name)
        assert not {"pause", "hold", "kill-child", "object-store"} & set(ground.kinds)
        assert {"kill", "notice", "terminate"} <= set(ground.kinds)
        assert not ground.coordinator
        assert ("network", "coordinator", "cut") in ground.limited
    assert "pause" in ground_of("minimal", kinds=("pause", "kill")).kinds


def test_a_script_that_is_read_by_patterns_has_no_points() -> None:
    ground = ground_of("script")
    assert ground.points == ()
    assert "hold" not in ground.kinds
    assert set(ground.events) == {"commit", "restore"}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"kinds": ("kil",)}, "'kil'; did you mean 'kill'"),
        ({"kinds": ()}, "no kind of fault is left"),
        ({"trainer": "solo", "kinds": ("grow",)}, "'grow' cannot be made: solo runs on 1"),
        ({"trainer": "script", "kinds": ("hold",)}, "'hold' cannot be made"),
        ({"trainer": "solo", "max_nodes": 3}, "3 nodes, but solo runs on 1 at most"),
        ({"min_faults": 3, "max_faults": 2}, "min_faults = 3, max_faults = 2"),
        ({"min_nodes": 0}, "min_nodes = 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(arguments: dict, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        schedules(**arguments)


def test_natures_tell_apart_what_a_limit_is_about() -> None:
    on = Trigger(at_step=1)
    assert nature(Kill(on=on)) == ("kill", "worker", "")
    assert nature(Kill(on=on, keep_flash=True)) == ("kill", "worker", "reboot")
    assert nature(Kill(on=on, target=Target(role="coordinator")))[1] == "coordinator"
    assert Ground(limited=(("kill", "worker", ""),)).allows(Kill(on=on)) is False


@QUICK
@given(schedules(trainer="minimal"))
def test_what_is_drawn_for_a_trainer_leaves_it_the_time_of_its_notices(plan: Schedule) -> None:
    taking = [f for f in plan.fault if isinstance(f, Notice) and f.withdraw_after_s is None]
    taking = [f for f in taking if not f.spares]
    if taking:
        kinds = {fault.kind for fault in plan.fault}
        assert kinds <= {"notice", "kill", "terminate", "grow"}
        kills = [f.target for f in plan.fault if f.kind in ("kill", "terminate")]
        assert all(target and target.nodes == ("node-1",) for target in kills)
    assert all((f.kill_after_s or f.lead_s) >= 4.0 for f in taking)
    notices = [fault for fault in plan.fault if isinstance(fault, Notice)]
    idle = [notice for notice in notices if notice not in taking]
    assert len(idle) <= (len(plan.cluster.nodes()) > 1)
    assert fair(plan) == plan


def test_kinds_that_need_something_get_a_cluster_that_has_it() -> None:
    plans = drawn(schedules(kinds=("disk-full", "object-store")), 40)
    assert {fault.kind for plan in plans for fault in plan.fault} == {"disk-full", "object-store"}
