"""What is known to come to nothing is refused before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaosspot import attack, trainers
from chaosspot.cluster.processes import ProcessCluster
from chaosspot.conductor import StartError
from chaosspot.conductor.settled import refuse, settled
from chaosspot.schedule import ClusterSpec, Kill, Schedule, Trigger
from chaosspot.trainers import Patterns, Timeouts, Trainer

TRAINER = Trainer(name="mine", command=("x",), timeouts=Timeouts(run_s=100.0))


def plan(*triggers: Trigger, seed: int = 1) -> Schedule:
    faults = tuple(Kill(on=on) for on in triggers)
    return settled(Schedule(fault=faults), nodes=None, seed=seed)


@pytest.mark.parametrize(
    ("trigger", "steps", "message"),
    [
        (Trigger(at_step=40), 39, "fault 1 waits for step 40, but the run stops at step 39"),
        (Trigger(at_step=40), 40, "fault 1 waits for step 40, but the run stops at step 40"),
        (Trigger(at_step=40), 41, None),
        (Trigger(at_step=40), None, None),
        (Trigger(at_s=100.0), None, "fault 1 waits for 100 s, but mine is stopped after 100 s"),
        (Trigger(at_s=60.0, delay_s=50.0), None, "fault 1 waits for 110 s"),
        (Trigger(at_s=99.0), None, None),
        (Trigger(event="snapshot", delay_s=200.0), None, "fault 1 waits for 200 s"),
        (Trigger(event="snapshot"), 1, None),
        (Trigger(point="p"), 1, None),
    ],
)
def test_a_trigger_that_can_never_come_is_refused(
    trigger: Trigger, steps: int | None, message: str | None
) -> None:
    schedule = plan(Trigger(at_s=1.0), trigger)
    if message is None:
        refuse("name", schedule, TRAINER, steps)
    else:
        with pytest.raises(ValueError, match=re.escape(f"name: {message}")):
            refuse("name", schedule, TRAINER, steps)


def test_jitter_counts_as_the_seed_decides_it() -> None:
    refused = set()
    for seed in range(20):
        try:
            refuse("n", plan(Trigger(at_s=60.0, jitter_s=80.0), seed=seed), TRAINER, None)
        except ValueError:
            refused.add(seed)
    assert 0 < len(refused) < 20


def test_a_point_needs_the_probe() -> None:
    trainer = Trainer(name="t", command=("x",), patterns=Patterns(commit=r"(?P<step>\d+)"))
    with pytest.raises(ValueError, match="waits for point 'p', but t is read by patterns"):
        refuse("name", plan(Trigger(point="p")), trainer, None)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\x1b[31mb"])
def test_a_name_that_cannot_be_a_directorys_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a directory's"):
        refuse(name, plan(Trigger(at_s=1.0)), TRAINER, None)


def test_nothing_is_made_for_what_is_refused(tmp_path: Path) -> None:
    trainer = trainers.load("minimal")
    with pytest.raises(ValueError, match="can never act"):
        attack(plan(Trigger(at_step=40)), trainer=trainer, steps=20, runs=tmp_path / "runs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(2, "node-0 cannot start 'x': No such file or directory"), StartError),
        (OSError("node-0: its supervisor died at once; see x.log"), OSError),
        (OSError(130, "node-0: no supervisor: Owner died"), OSError),
        (OSError(28, "No space left on device", "/x"), OSError),
        (TimeoutError("node-0 did not start within 60 s"), OSError),
    ],
)
def test_only_a_command_that_cannot_be_started_is_the_users_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[Exception]
) -> None:
    async def start(*_: object) -> None:
        raise error

    monkeypatch.setattr(ProcessCluster, "start", start)
    trainer = Trainer(name="mine", command=("x",))
    with pytest.raises((OSError, StartError), match=re.escape(str(error.args[-1]))) as caught:
        attack(plan(Trigger(at_s=1.0)), trainer=trainer, runs=tmp_path / "runs")
    assert isinstance(caught.value, kind)


def test_the_cloud_is_the_schedules_unless_another_is_asked_for() -> None:
    plan = Schedule(cluster=ClusterSpec(cloud="gcp"), fault=(Kill(on=Trigger(at_s=1.0)),))
    assert settled(plan, nodes=None, seed=1).cluster.cloud == "gcp"
    assert settled(plan, cloud="azure", nodes=8, seed=1).cluster.cloud == "azure"
    assert settled(plan, nodes=8, seed=1).cluster.cloud == "gcp"
    with pytest.raises(ValueError, match="cloud = 'oracle'; valid: aws, gcp, azure"):
        settled(plan, cloud="oracle", nodes=None, seed=1)  # type: ignore[arg-type]
