"""What an exploration hands over, and where; its attacks are stood in for."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from chaosspot import content, schedule, trainers
from chaosspot.conductor import RunError
from chaosspot.explore import running
from chaosspot.explore.trial import Strike, Trial
from chaosspot.schedule import Schedule
from chaosspot.trainers import Trainer
from chaosspot.verdict import Outcome


class Fragile:
    """Fails by whatever is done to it."""

    def __init__(self, trainer: Trainer, folder: Path) -> None: ...
    def learn(self, undisturbed: Trial) -> None: ...

    def __call__(self, plan: Schedule, purpose: str) -> Trial:
        strikes = tuple(
            Strike(kind=fault.kind, target="any", trigger="at_step", effect=True, step=1)
            for fault in plan.fault
        )
        return Trial(
            outcome=Outcome.FAIL if strikes else Outcome.PASS,
            oracle="durability" if strikes else "",
            strikes=strikes,
            steps=100,
            steps_per_s=10.0,
            events={"commit": 100},
        )


@pytest.fixture(autouse=True)
def fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Trying", Fragile)


def test_the_command_that_replays_names_what_was_asked_for(tmp_path: Path) -> None:
    mine = tmp_path / "a folder" / "mine.toml"
    mine.parent.mkdir()
    mine.write_text((content.content_root() / "fixtures/trainers/solo.toml").read_text())
    keep = tmp_path / "to come" / "kept"
    report = running.explore(
        str(mine), budget="60", kinds=("kill",), seed=1, runs=tmp_path / "runs", keep=keep
    )
    chaosspot, attack, plan, option, trainer = shlex.split(report.replay)
    assert (chaosspot, attack, option) == ("chaosspot", "attack", "--trainer")
    assert Path(plan).parent == keep
    assert schedule.load(plan)[1].fault
    assert trainers.load(trainer).name == "mine"


def test_a_folder_that_cannot_be_is_said_before_anything_is_tried(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keep, runs = tmp_path / "file" / "kept", tmp_path / "runs"
    with pytest.raises(RunError, match=f"cannot keep schedules in '{keep}': Not a directory"):
        running.explore("solo", budget="60", kinds=("kill",), seed=1, runs=runs, keep=keep)
    assert not runs.exists()
