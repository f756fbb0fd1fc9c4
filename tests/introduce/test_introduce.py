from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaosspot import trainers
from chaosspot.introduce import _checkpoints, guess, lines_of

CHAOSSPOT = Path(sys.executable).with_name("chaosspot")


@pytest.mark.parametrize(
    ("lines", "step", "loss"),
    [
        (["step 1 loss 2.5", "step 2 loss 2.25", "step 3 loss 2.0"], 3, 2.0),
        (
            ["iter 10: train loss 4.1e-1, lr 1", "iter 20: train loss 3e-1", "iter 30: loss 0"],
            30,
            0,
        ),
        (["{'loss': 1.5}", "Step=5, Loss=1.25", "Step=6, Loss=1.0", "Step=7, Loss=0.5"], 7, 0.5),
        (["[1/100] ok", "[2/100] ok", "[3/100] ok"], 3, None),
        (["global_step: 7 | acc 1", "global_step: 8 | acc 1", "global_step: 9 | acc 1"], 9, None),
        (["iteration 1/9 | loss: nan"] + [f"iteration {i}/9 | loss: 1" for i in (2, 3)], 3, 1),
    ],
)
def test_the_usual_ways_to_print_a_step_are_read(
    lines: list[str], step: int, loss: float | None
) -> None:
    patterns = guess(lines)
    assert patterns is not None
    fields = patterns.parse(lines[-1])
    assert fields is not None
    assert (fields["step"], fields.get("loss")) == (step, loss)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["hello"] * 5,
        ["step 3", "step 2", "step 1"],
        ["step 1", "step 2"],
        ["listening on port 1", "listening on port 2", "listening on port 3"],
    ],
)
def test_what_does_not_count_up_is_not_taken_for_steps(lines: list[str]) -> None:
    assert guess(lines) is None


SCRIPT = """
import json, os, pathlib, time
path = pathlib.Path(os.environ["CHAOSSPOT_STORE"]) / "ckpt.json"
start = json.loads(path.read_text())["step"] if path.exists() else 0
if start:
    print(f"resumed at step {start}", flush=True)
for step in range(start + 1, start + 200):
    time.sleep(0.02)
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    if step % 5 == 0:
        draft = path.with_suffix(".tmp"); draft.write_text(json.dumps({"step": step}))
        draft.replace(path)
"""


def test_output_is_cut_as_an_attack_cuts_it() -> None:
    assert lines_of(b"\r 1/9\r 2/9\r\n 3/9\x0b\n") == ["", " 1/9", " 2/9", " 3/9\x0b", ""]
    patterns = guess(lines_of(b"\r1/9 loss 3\r2/9 loss 2\r3/9 loss 1"))
    assert patterns is not None


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("model.weights", True),
        ("checkpoint-100/0_0.distcp", True),
        ("no-suffix", True),
        ("last.pt", True),
        ("last.pt.tmp", False),
        (".hidden", False),
        (".cache/last.pt", False),
        ("train.log", False),
    ],
)
def test_whatever_a_trainer_leaves_in_its_store_may_be_a_checkpoint(
    tmp_path: Path, path: str, taken: bool
) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    assert _checkpoints(tmp_path) == ((path,) if taken else ())


def init(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHAOSSPOT, "init", "--try-s", "2", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.long
def test_init_describes_a_trainer_and_the_first_test_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = init(tmp_path, "--", sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    assert "read  steps" in done.stdout
    assert "read  loss" in done.stdout
    assert "ckpt.json" in done.stdout
    trainer = trainers.load(str(tmp_path / "chaosspot-trainer.toml"))
    assert trainer.patterns is not None
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "sudden", "test_preemption.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert tested.returncode == 0, tested.stdout
    assert "chaosspot: 1 pass" in tested.stdout
    again = init(tmp_path, "--", sys.executable, str(script))
    assert again.returncode == 2
    assert "exists already; nothing was written" in again.stderr.replace("\n", "")


def test_init_says_what_it_could_not_read(tmp_path: Path) -> None:
    done = init(tmp_path, "--", sys.executable, "-c", "import time; time.sleep(9)")
    assert done.returncode == 0, done.stderr
    assert "not read  steps" in done.stdout
    assert "it printed nothing in 2 s; --try-s gives it longer" in done.stdout
    assert "# [patterns]" in (tmp_path / "chaosspot-trainer.toml").read_text()
    trainers.load(str(tmp_path / "chaosspot-trainer.toml"))


def test_init_says_when_a_trainer_fails_undisturbed(tmp_path: Path) -> None:
    done = init(tmp_path, "--", sys.executable, "-c", "raise SystemExit('no data {here}')")
    assert done.returncode == 3
    assert "failed undisturbed, with code 1" in done.stderr
    assert "no data {here}" in done.stderr


def test_init_says_once_what_cannot_be_started(tmp_path: Path) -> None:
    done = init(tmp_path, "--", "/no/such/trainer")
    assert done.returncode == 2
    said = done.stderr.replace("\n", " ")
    assert said.count("cannot start '/no/such/trainer'") == 1
    assert said.count("No such file or directory") == 1
    assert "Errno" not in said
    assert not list(tmp_path.glob("*.toml"))
