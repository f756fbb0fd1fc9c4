"""What the trainer without a coordinator promises, with real processes and real signals."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Run

StartRun = Callable[..., "Run"]
Digests = dict[int, str]
SOLO = Path(__file__).resolve().parents[2] / "fixtures" / "trainers" / "solo.py"


def assert_exact(run: Run, undisturbed: Digests) -> None:
    commits = run.events("commit")
    assert commits
    assert [e for e in commits if e["digest"] != undisturbed[e["step"]]] == []
    assert [e for e in commits if e["samples"] != [1] * 8] == []


def killed_after(run: Run, step: int) -> int:
    """Let ``first`` train beyond a step, kill it; returns the step of its newest checkpoint."""
    run.start("first", script=SOLO)
    run.reach(step, "first")
    run.kill("first")
    run.end("first")
    return max(event["step"] for event in run.events("snapshot"))


def test_after_a_kill_it_goes_on_from_the_newest_checkpoint(
    start_run: StartRun, undisturbed_solo: Digests
) -> None:
    run = start_run(world=1)
    newest = killed_after(run, 12)
    run.start("second", script=SOLO)
    run.reach(newest + 20, "second")
    assert_exact(run, undisturbed_solo)
    (restore,) = run.events("restore")
    assert restore["source"] == "store"
    # It may have been killed after storing one more, before it could say so.
    assert restore["step"] - newest in (0, 5)
    generations = [run.events("begin", node=node)[0]["generation"] for node in ("first", "second")]
    assert generations == [1, 2]


def test_what_is_incomplete_or_damaged_is_passed_over(
    start_run: StartRun, undisturbed_solo: Digests
) -> None:
    run = start_run(world=1)
    newest = killed_after(run, 12)
    whole = run.store / f"checkpoint-{newest}"
    for older in run.store.glob("checkpoint-*"):
        if older != whole:
            shutil.rmtree(older)
    unsigned, lacking, mixed = (run.store / f"checkpoint-{newest + n}" for n in (100, 101, 102))
    for folder in (unsigned, lacking, mixed):
        shutil.copytree(whole, folder)
    (unsigned / "manifest.json").unlink()
    (lacking / "optimizer.json").unlink()
    (mixed / "model.json").write_text(json.dumps({"step": newest + 102}))
    run.start("second", script=SOLO)
    run.reach(newest + 5, "second")
    assert [event["step"] for event in run.events("restore")] == [newest]
    assert_exact(run, undisturbed_solo)


def test_sigterm_saves_and_costs_no_step(start_run: StartRun, undisturbed_solo: Digests) -> None:
    run = start_run(world=1)
    run.start("first", script=SOLO)
    run.reach(7, "first")
    run.kill("first", sig=signal.SIGTERM)
    assert run.end("first") == (0, "")
    assert [e["event"] for e in run.events("notice", "drain", "leave")] == [
        "notice",
        "drain",
        "leave",
    ]
    last = run.step_of("first")
    run.start("second", script=SOLO)
    run.reach(last + 5, "second")
    assert run.events("begin", node="second")[0]["step"] == last + 1
    assert run.abandoned("first") == []
    assert_exact(run, undisturbed_solo)


def test_it_keeps_the_newest_checkpoints(start_run: StartRun) -> None:
    run = start_run(world=1)
    run.start("first", script=SOLO, steps=23)
    assert run.end("first") == (0, "")
    kept = sorted(path.name for path in run.store.glob("checkpoint-*"))
    assert kept == ["checkpoint-15", "checkpoint-20", "checkpoint-23"]
    assert [event["reason"] for event in run.events("exit")] == ["finished"]
