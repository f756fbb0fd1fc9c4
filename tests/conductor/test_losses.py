"""Losses of several nodes, and a slow one, on real processes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaosspot import Verdict, schedule, toml
from chaosspot import history as h
from chaosspot.schedule import (
    ClusterSpec,
    CommonShock,
    Group,
    Grow,
    Kill,
    Notice,
    Schedule,
    Slow,
    Target,
    Trigger,
)
from chaosspot.verdict import Outcome

Attack = Callable[..., Verdict]

SOON = Trigger(at_step=15)
NOBODY = Target(correlation=CommonShock(shock=0.0))
ALL = Target(correlation=CommonShock(shock=1.0, by="all"))


def told(verdict: Verdict, kind: type) -> list[Any]:
    history = h.read(Path(verdict.run) / "history.jsonl")
    return [record for record in history if isinstance(record, kind)]


def test_a_draw_of_nobody_alone_proves_nothing(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON, target=NOBODY))
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.primary is not None
    assert "its draw took no node" in verdict.primary.message


@pytest.mark.soak
def test_a_draw_of_nobody_beside_a_loss_is_written_down_and_replayed(attack: Attack) -> None:
    kill = Kill(on=SOON, target=Target(count=1), replace_after_s=0.2)
    verdict = attack(Kill(on=SOON, target=NOBODY), kill)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    plan = schedule.read(Path(verdict.run) / "schedule.toml")
    assert plan.fault[0].resolved is not None
    assert plan.fault[0].resolved.nodes == ()
    again = attack(schedule=toml.loads(toml.dumps(plan), Schedule))
    assert again.outcome is Outcome.PASS
    (hit,), (hit_again,) = (told(run, h.FaultInjected) for run in (verdict, again))
    assert hit.nodes == hit_again.nodes


@pytest.mark.long
def test_a_job_whose_nodes_are_all_gone_waits_for_those_that_will_come(attack: Attack) -> None:
    """Growth at a time counts as capacity that is still to come; it starts cold from the store."""
    gone = Kill(on=Trigger(at_s=1.5), target=ALL)
    verdict = attack(gone, Grow(on=Trigger(at_s=4.0), count=2))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (grown,) = (r for r in told(verdict, h.FaultInjected) if r.kind == "grow")
    came = [r for r in told(verdict, h.NodeUp) if r.t > grown.t]
    assert [r.node for r in came] == ["node-3", "node-4"]
    assert {r.zone for r in came} == {"a", "b"}
    assert verdict.measured["restored"]["store"] >= 1


@pytest.mark.long
def test_notices_that_overlap_are_of_different_nodes_and_spare_the_reserved(
    attack: Attack,
) -> None:
    notice = Notice(on=Trigger(at_s=1.0), target=Target(count=1), lead_s=20.0)
    groups = (Group(count=2), Group(count=1, pool="reserved"))
    plan = Schedule(cluster=ClusterSpec(group=groups), fault=(notice, notice))
    verdict = attack(schedule=plan)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    hit = [name for r in told(verdict, h.FaultInjected) for name in r.nodes]
    assert sorted(hit) == ["node-0", "node-1"]


@pytest.mark.long
def test_a_slow_node_takes_longer_for_its_own_part(attack: Attack) -> None:
    slow = Slow(on=SOON, target=Target(nodes=("node-1",)), factor=6.0, duration_s=6.0)
    verdict = attack(slow)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (effect,) = told(verdict, h.FaultEffect)
    assert (effect.node, effect.what) == ("node-1", "slowed")
    assert any(f.oracle == "gray" and f.unit == "x" for f in verdict.findings)
    healed = next(r.t for r in told(verdict, h.FaultHealed))
    during = [r for r in told(verdict, h.Commit) if effect.t < r.t < healed]
    own = [r.busy_s for r in during if r.node == "node-1"]
    others = [r.busy_s for r in during if r.node != "node-1"]
    assert statistics.mean(own) > 1.25 * statistics.mean(others)  # a sleep is slowed in part
    assert any(r.node == "node-1" and r.t > healed for r in told(verdict, h.Commit))
