"""The ordinary script, and the sick ones made of it: what they print and what they leave behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaosspot import trainers
from chaosspot.conductor.weights import arrays, difference
from chaosspot.oracles.comparison import Difference

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "fixtures" / "trainers" / "script.py"
SICK = ROOT / "suites" / "sick"
STEPS = 60


def start(script: Path, checkpoint: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(script), "--steps", str(STEPS), "--checkpoint", str(checkpoint)]
    environment = {"PYTHONPATH": str(SCRIPT.parent), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def run(script: Path, checkpoint: Path) -> list[str]:
    with start(script, checkpoint) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.splitlines()


def killed_at(step: int, script: Path, checkpoint: Path) -> None:
    with start(script, checkpoint) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith(f"step {step} "):
                break
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def apart(one: Path, other: Path) -> Difference:
    return difference(arrays(one), arrays(other))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = tmp_path_factory.mktemp("undisturbed") / "last.npz"
    lines = run(SCRIPT, checkpoint)
    patterns = trainers.load("script").patterns
    assert patterns is not None
    events = [patterns.parse(line) or {} for line in lines]
    assert [event["step"] for event in events] == list(range(1, STEPS + 1))
    assert events[-1]["loss"] < 0.1 * events[0]["loss"]
    return checkpoint


def test_a_kill_changes_nothing_it_ends_with(undisturbed: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "last.npz"
    killed_at(25, SCRIPT, checkpoint)
    assert run(SCRIPT, checkpoint)[0] == "resumed from store at step 20"
    assert not apart(checkpoint, undisturbed).unequal


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("average_lost", {"average"}), ("warm_restart", {"average", "momentum", "rate", "weights"})],
)
def test_a_sick_one_is_right_until_it_is_killed(
    undisturbed: Path, tmp_path: Path, name: str, wrong: set[str]
) -> None:
    script = SICK / f"{name}.py"
    run(script, tmp_path / "calm.npz")
    assert not apart(tmp_path / "calm.npz", undisturbed).unequal
    killed_at(25, script, tmp_path / "last.npz")
    run(script, tmp_path / "last.npz")
    assert set(apart(tmp_path / "last.npz", undisturbed).unequal) == wrong
