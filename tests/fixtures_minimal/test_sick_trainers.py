"""A sick trainer is healthy while nothing happens, and shows its one bug when something does."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from chaosspot import content, trainers

if TYPE_CHECKING:
    from conftest import Run

StartRun = Callable[..., "Run"]
Digests = dict[int, str]
SICK = Path(__file__).resolve().parents[2] / "suites" / "sick"
NAMES = content.names("suites/sick")


def healthy_of(name: str) -> str:
    sick = trainers.load(name).sick
    assert sick is not None
    return sick.healthy


WITHOUT_SERVICES = [name for name in NAMES if healthy_of(name) in ("minimal", "solo")]


def wrong_steps(run: Run, undisturbed: Digests) -> list[int]:
    return [e["step"] for e in run.events("commit") if e["digest"] != undisturbed[e["step"]]]


@pytest.mark.parametrize("name", WITHOUT_SERVICES)
def test_undisturbed_they_are_exact(
    start_run: StartRun, undisturbed: Digests, undisturbed_solo: Digests, name: str
) -> None:
    alone = healthy_of(name) == "solo"
    nodes = ("node-0",) if alone else ("node-0", "node-1")
    run = start_run(world=len(nodes))
    run.start(*nodes, script=SICK / f"{name.replace('-', '_')}.py", steps=20)
    assert [run.end(node) for node in nodes] == [(0, "")] * len(nodes)
    assert wrong_steps(run, undisturbed_solo if alone else undisturbed) == []
    assert {run.step_of(node) for node in nodes} == {20}


@pytest.mark.parametrize("name", NAMES)
def test_a_description_differs_from_the_healthy_ones_by_what_it_promises_alone(name: str) -> None:
    described = trainers.load(name)
    healthy = trainers.load(healthy_of(name))
    assert described.coordinator == healthy.coordinator
    assert described.python_path == healthy.python_path
    may_differ = ("rejoins", "recovery_s", "snapshot_every_steps")
    less = {name: getattr(described.promises, name) for name in may_differ}
    assert described.promises == replace(healthy.promises, **less)
    assert described.final == healthy.final


def test_deaf_works_on(start_run: StartRun) -> None:
    run = start_run(world=1)
    run.start("node-0", script=SICK / "deaf.py")
    run.reach(2, "node-0")
    run.kill("node-0", sig=signal.SIGTERM)
    run.reach(run.step_of("node-0") + 10, "node-0")
    assert run.events("notice", "drain", "leave", "exit") == []


@pytest.mark.parametrize("name", ["amnesiac", "forgetful"])
def test_what_is_not_restored_shows_after_a_cold_start(
    start_run: StartRun, undisturbed: Digests, name: str
) -> None:
    run = start_run(world=1)
    run.start("node-0", script=SICK / f"{name}.py")
    run.reach(7, "node-0")
    run.kill("node-0")
    run.end("node-0")
    assert wrong_steps(run, undisturbed) == []
    run.start("node-1", script=SICK / f"{name}.py")
    run.reach(10, "node-1")
    (restore,) = run.events("restore", node="node-1")
    assert restore["source"] == "store"
    assert wrong_steps(run, undisturbed)[0] == restore["step"] + 1


@pytest.mark.parametrize("name", ["amnesiac", "forgetful"])
def test_what_is_not_restored_shows_in_a_newcomer(
    start_run: StartRun, undisturbed: Digests, name: str
) -> None:
    run = start_run(world=1)
    run.start("node-0", script=SICK / f"{name}.py")
    run.reach(4, "node-0")
    run.start("node-1", script=SICK / f"{name}.py")
    run.reach(1, "node-1")
    (restore,) = run.events("restore", node="node-1")
    assert restore["source"] == "peer"
    first = run.events("commit", node="node-1")[0]
    assert first["digest"] != undisturbed[first["step"]]


def test_hanging_commits_nothing_after_a_death(start_run: StartRun) -> None:
    run = start_run(world=2)
    run.start("node-0", "node-1", script=SICK / "hanging.py")
    run.reach(3, "node-0", "node-1")
    run.kill("node-1")
    run.end("node-1")

    def at(step: int) -> Callable[[], bool]:
        return lambda: run.step_of("node-0") == step

    # Hanging begins when the coordinator has told of the death; that takes it a moment.
    run.wait_for("rest", lambda: run.stays(at(run.step_of("node-0")), for_s=0.1))
    last = run.step_of("node-0")
    assert run.stays(at(last), for_s=0.5)
    assert run.processes["node-0"].poll() is None
    assert run.events("begin", node="node-0")[-1]["step"] == last + 1
