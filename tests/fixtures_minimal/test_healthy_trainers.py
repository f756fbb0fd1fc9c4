"""What a sick trainer fails by, the healthy one that it derives from passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from chaosspot import attack, content, trainers
from chaosspot.schedule import ClusterSpec, Group, Kill, Schedule, Trigger
from chaosspot.verdict import Outcome


def pairs() -> Iterator[ParameterSet]:
    """Each healthy trainer with the schedules of its sick ones; CI has time for one of them."""
    sick = [trainers.load(name).sick for name in content.names("suites/sick")]
    healthy = {(about.healthy, about.schedule) for about in sick if about is not None}
    seen: set[str] = set()
    for trainer, schedule in sorted(healthy):
        marks = (pytest.mark.soak,) if trainer in seen else ()
        yield pytest.param(trainer, schedule, marks=marks)
        seen.add(trainer)


@pytest.mark.long
@pytest.mark.parametrize(("trainer", "schedule"), list(pairs()))
def test_the_healthy_trainer_passes_the_schedule(
    tmp_path: Path, trainer: str, schedule: str
) -> None:
    verdict = attack(schedule, trainer=trainer, seed=1, runs=tmp_path)
    assert verdict.outcome is Outcome.PASS, verdict.findings


@pytest.mark.long
def test_a_plain_script_is_read_by_what_it_prints(tmp_path: Path) -> None:
    kill = Kill(on=Trigger(at_step=62), replace_after_s=0.3)
    plan = Schedule(cluster=ClusterSpec(group=(Group(count=1),)), fault=(kill,))
    verdict = attack(plan, trainer="plain-torch", seed=1, runs=tmp_path)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert verdict.measured["restored"]["store"] == 1
    assert verdict.measured["steps"] > 62
