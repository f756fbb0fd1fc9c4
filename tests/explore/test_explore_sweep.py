"""What is tried first: all that can be made, each once, and what earlier attacks have shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chaosspot import toml, trainers
from chaosspot.conductor import unsuited
from chaosspot.conductor.links import check_toxics
from chaosspot.explore import schedules
from chaosspot.explore.budget import Budget
from chaosspot.explore.fairness import fair, supplied
from chaosspot.explore.ground import KINDS, ground_of, nature
from chaosspot.explore.journal import Entry
from chaosspot.explore.learned import Learned, learned
from chaosspot.explore.places import most_taken
from chaosspot.explore.running import few
from chaosspot.explore.sweep import sweep
from chaosspot.explore.trial import Strike, Trial, key_of
from chaosspot.schedule import Kill, Notice, ObjectStore, Schedule, Trigger
from chaosspot.store_misbehaviour import BitFlip
from chaosspot.verdict import Outcome

names = st.sampled_from(["snapshot.before-rename", "upload.before-manifest", "step.begun"])
counts = st.dictionaries(names, st.integers(1, 300))
lives = st.dictionaries(st.sampled_from(["join", "restore", "drain"]), st.integers(1, 9))
trials = st.builds(
    Trial,
    outcome=st.sampled_from(list(Outcome)),
    points=counts,
    events=lives,
    steps=st.integers(0, 200),
    keys=st.lists(st.sampled_from(["*/state.bin", "*/part-*"]), unique=True).map(tuple),
    strikes=st.lists(
        st.builds(
            Strike,
            kind=st.sampled_from(KINDS),
            target=st.just("any"),
            trigger=st.just("at_step"),
            effect=st.booleans(),
            step=st.none() | st.integers(0, 9),
        ),
        max_size=2,
    ).map(tuple),
)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    made = [
        ("undisturbed", Schedule()),
        *(("search", p) for p in draw(st.lists(PLANS, max_size=3))),
    ]
    return [
        Entry(purpose=purpose, key=key_of(plan), schedule=plan, trial=draw(trials))
        for purpose, plan in made
    ]


PLANS = schedules(trainer="minimal", max_faults=2)


@pytest.mark.parametrize("name", ["minimal", "solo", "bucket", "sharded", "script", "reference"])
def test_all_of_a_sweep_can_be_made_is_fair_and_is_there_once(name: str) -> None:
    trainer = trainers.load(name)
    ground = ground_of(name)
    ground = replace(ground, clusters=few(ground))
    points = {} if trainer.patterns else {"snapshot.before-rename": 8}
    plans = list(sweep(ground, Learned(steps=40, calm_points=points)))
    assert len({key_of(plan) for plan in plans}) == len(plans)
    for plan in plans:
        plan.check()
        check_toxics(plan, own=False)
        assert unsuited(plan, trainer) == ""
        assert toml.loads(toml.dumps(plan), Schedule) == plan
        assert len(plan.fault) <= 2
        assert fair(plan) == plan
        assert supplied(plan, min_alive=ground.min_alive) == plan
        assert all(ground.allows(fault) for fault in plan.fault)
    alone = {nature(plan.fault[0]) for plan in plans if len(plan.fault) == 1}
    assert {kind for kind, _, _ in alone} == set(ground.kinds)


@settings(max_examples=20)
@given(entries(), st.integers(0, 9))
def test_whatever_was_learned_a_sweep_strikes_only_at_what_was_seen(
    listed: list[Entry], seed: int
) -> None:
    known = learned(listed)
    ground = ground_of("minimal")
    seen = {name for entry in listed for name in entry.trial.points}
    seen |= {name for entry in listed for name in entry.trial.events}
    seen |= {f.on.point or f.on.event for entry in listed for f in entry.schedule.fault}
    for plan in sweep(ground, known, seed=seed):
        plan.check()
        assert not {fault.kind for fault in plan.fault} & set(known.useless)
        if known.steps:
            assert {f.on.point or f.on.event for f in plan.fault} <= {None, *seen}


@settings(max_examples=20)
@given(entries())
def test_who_ever_had_an_effect_is_never_useless(listed: list[Entry]) -> None:
    known = learned(listed)
    bitten = {s.kind for entry in listed for s in entry.trial.strikes if s.effect}
    assert not bitten & set(known.useless)
    assert set(known.calm_points) <= set(known.points)
    assert all(count <= known.points[name] for name, count in known.calm_points.items())


@given(PLANS)
def test_what_is_fair_and_supplied_stays_so(plan: Schedule) -> None:
    once = supplied(fair(plan), min_alive=1)
    assert supplied(fair(once), min_alive=1) == once
    nodes = once.cluster.nodes()
    for_good = [f for f in once.fault if f.TAKES_NODES and f.takes and f.replace_after_s is None]
    assert sum(most_taken(fault.target, nodes) for fault in for_good) < len(nodes)


def test_damage_is_tried_on_each_sort_of_object_with_a_loss_that_makes_it_read() -> None:
    ground = ground_of("bucket")
    known = Learned(steps=40, keys=("*/manifest.json", "*/state.bin"))
    plans = [plan for plan in sweep(ground, known) if len(plan.fault) == 2]
    damaged = {
        fault.how.keys
        for plan in plans
        for fault in plan.fault
        if isinstance(fault, ObjectStore) and isinstance(fault.how, BitFlip)
    }
    assert damaged == {"*/manifest.json", "*/state.bin"}


def test_who_could_not_save_before_a_loss_may_repeat_more_and_others_may_not() -> None:
    on = Trigger(at_step=20)
    flip = ObjectStore(on=on, how=BitFlip(first=1), duration_s=5.0)
    both = fair(Schedule(fault=(flip, Kill(on=on, replace_after_s=0.1))))
    assert (both.expect.rework_steps or 0) > 1000
    assert (both.expect.recovery_s or 0) >= 5.0
    for alone in ((flip,), (Kill(on=on, replace_after_s=0.1),)):
        assert fair(Schedule(expect=both.expect, fault=alone)).expect == Schedule().expect


def test_a_loss_follows_what_only_a_first_fault_brings_about() -> None:
    calm = Trial(outcome=Outcome.PASS, points={"step.begun": 40}, events={"join": 3}, steps=40)
    plan = Schedule(fault=(Notice(on=Trigger(at_step=20), lead_s=4.0, replace_after_s=0.1),))
    after = Trial(
        outcome=Outcome.PASS,
        points={"step.begun": 40, "restore.before-load": 2},
        events={"join": 4, "drain": 1},
    )
    known = learned(
        [
            Entry(purpose="undisturbed", key="a", schedule=Schedule(), trial=calm),
            Entry(purpose="search", key="b", schedule=plan, trial=after),
        ]
    )
    moments = {on.point or (on.event, on.nth) for _, on in known.follows}
    assert moments == {"restore.before-load", ("join", 4), ("drain", 1)}
    then = [p.fault for p in sweep(ground_of("minimal"), known) if len(p.fault) == 2]
    assert any(first.kind == "notice" and second.on.event == "drain" for first, second in then)


@given(st.integers(1, 500), st.integers(0, 600), st.floats(0.0, 1e5), st.sampled_from("smh"))
def test_a_budget_is_spent_once_its_share_is_whole(
    most: int, attacks: int, time_s: float, unit: str
) -> None:
    for budget in (Budget.parse(str(most)), Budget.parse(f"{most}{unit}")):
        share = budget.share(attacks, time_s)
        assert 0 <= share <= 1
        assert budget.left(attacks, time_s) == (share < 1)
        more: Any = budget.share(attacks + 1, time_s + 1.0)
        assert more >= share
