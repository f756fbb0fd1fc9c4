"""What the minimal trainer promises, with real processes and real signals."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from chaosspot.services.metadata import Instance, MetadataService

if TYPE_CHECKING:
    from conftest import Run

StartRun = Callable[..., "Run"]
Digests = dict[int, str]
THREE = ("node-0", "node-1", "node-2")


class Conductor:
    """Arms points, and holds whoever comes there until told to let go, or until this is left."""

    def __init__(self, run: Run) -> None:
        control = run.directory / "control"
        self.points = run.directory / "points"
        self.points.mkdir()
        self.environment = {
            "CHAOSSPOT_POINTS": str(self.points),
            "CHAOSSPOT_CONTROL": str(control),
        }
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(control))
        self.listener.listen()
        self.listener.settimeout(20)
        self.held: list[socket.socket] = []

    def __enter__(self) -> Conductor:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self.listener.close()

    def let_go(self) -> None:
        while self.held:
            self.held.pop().close()

    def arm(self, point: str) -> None:
        (self.points / point).touch()

    def wait_at(self, point: str) -> str:
        """The node that came there; the point lets everyone else pass."""
        held, _ = self.listener.accept()
        self.held.append(held)
        (self.points / point).unlink()
        asked = json.loads(held.recv(4096))
        assert asked["point"] == point
        return str(asked["node"])


def assert_exact(run: Run, undisturbed: Digests) -> None:
    """Every commit is the undisturbed run's, used each micro-shard once, and follows the last."""
    commits = run.events("commit")
    wrong = [e for e in commits if e["digest"] != undisturbed[e["step"]]]
    wrong += [e for e in commits if e["step"] > 1 and e["parent"] != undisturbed[e["step"] - 1]]
    wrong += [e for e in commits if e["samples"] != [1] * 8]
    assert commits
    assert not wrong


def test_three_workers_do_what_one_does(start_run: StartRun, undisturbed: Digests) -> None:
    run = start_run(world=3)
    run.start(*THREE, steps=30)
    assert [run.end(node) for node in THREE] == [(0, "")] * 3
    assert_exact(run, undisturbed)
    for node in THREE:
        assert [event["step"] for event in run.events("commit", node=node)] == list(range(1, 31))
    assert {event["world"] for event in run.events("commit")} == {3}
    assert [event["reason"] for event in run.events("exit")] == ["finished"] * 3
    losses = [event["loss"] for event in run.events("commit", node="node-0")]
    assert losses[-1] < losses[0] / 2
    kept = sorted(path.name for path in run.store.glob("checkpoint-*"))
    assert kept == ["checkpoint-20.json", "checkpoint-25.json", "checkpoint-30.json"]
    assert [event["step"] for event in run.events("snapshot")] == [5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize("victim", ["first to join", "last to join"])
def test_survivors_repeat_the_step_in_flight(
    start_run: StartRun, undisturbed: Digests, victim: str
) -> None:
    run = start_run(world=3)
    run.start(*THREE)
    run.reach(7, *THREE)
    joined = [event["node"] for event in run.events("join")]
    # Ranks follow the order in which the coordinator saw them: whoever saves is rank 0.
    first = run.events("snapshot")[0]["node"]
    dead = first if victim == "first to join" else next(n for n in joined if n != first)
    alive = [node for node in THREE if node != dead]
    run.kill(dead)
    before = run.step_of(alive[0])
    run.reach(before + 12, *alive)
    assert_exact(run, undisturbed)
    abandoned = run.abandoned(*alive)
    assert len({attempt[1:] for attempt in abandoned}) <= 1, abandoned
    for node, step, generation in abandoned:
        repeats = [e["generation"] for e in run.events("commit", node=node) if e["step"] == step]
        assert repeats > [generation]
    assert not run.events("restore", node=alive[0])[1:]
    assert run.events("snapshot")[-1]["node"] in alive


def test_two_deaths_at_once_are_one_change(start_run: StartRun, undisturbed: Digests) -> None:
    run = start_run(world=3)
    run.start(*THREE)
    run.reach(3, *THREE)
    run.kill("node-0", "node-2")
    run.reach(run.step_of("node-1") + 5, "node-1")
    assert_exact(run, undisturbed)
    assert len(run.abandoned("node-1")) <= 1
    assert run.events("commit")[-1]["world"] == 1


def test_a_newcomer_gets_the_state_and_costs_nobody_a_step(
    start_run: StartRun, undisturbed: Digests
) -> None:
    run = start_run(world=2)
    run.start("node-0", "node-1")
    run.reach(5, "node-0")
    run.start("node-2")
    run.reach(1, "node-2")
    run.reach(run.step_of("node-2") + 5, *THREE)
    assert_exact(run, undisturbed)
    (restore,) = run.events("restore", node="node-2")
    assert restore["source"] == "peer"
    assert restore["step"] >= 5
    assert run.events("commit", node="node-2")[0]["step"] == restore["step"] + 1
    assert run.abandoned(*THREE) == []
    assert run.events("commit")[-1]["world"] == 3


def test_after_the_death_of_all_the_store_is_what_is_left(
    start_run: StartRun, undisturbed: Digests
) -> None:
    run = start_run(world=3)
    run.start(*THREE)
    run.reach(12, *THREE)
    run.kill(*THREE)
    for node in THREE:
        run.end(node)
    saved = run.events("snapshot")[-1]["step"]
    last = run.events("begin")[-1]
    good = (run.store / f"checkpoint-{saved}.json").read_text()
    forged = json.loads(good)
    forged["state"]["step"] += 100
    (run.store / f"checkpoint-{saved + 100}.json").write_text(json.dumps(forged))
    for later in (101, 102):
        (run.store / f"checkpoint-{saved + later}.json").write_text(good[:-30])
    run.start("node-3", "node-4")
    run.reach(last["step"] + 5, "node-3", "node-4")
    assert_exact(run, undisturbed)
    (cold,) = (event for event in run.events("restore") if event["source"] == "store")
    assert cold["step"] == saved > 0
    again = run.events("begin", node=cold["node"])[0]
    assert again["step"] == saved + 1
    assert again["generation"] > last["generation"]
    # What is broken does not push out what is whole.
    newest = run.events("snapshot")[-1]["step"]
    assert newest > saved
    assert (run.store / f"checkpoint-{newest}.json").exists()


def test_sigterm_drains_and_costs_the_others_nothing(
    start_run: StartRun, undisturbed: Digests
) -> None:
    run = start_run(world=3)
    run.start(*THREE)
    run.reach(5, *THREE)
    run.kill("node-1", sig=signal.SIGTERM)
    assert run.end("node-1") == (0, "")
    run.reach(run.step_of("node-1") + 5, "node-0", "node-2")
    assert_exact(run, undisturbed)
    assert run.abandoned(*THREE) == []
    told = run.events("notice", "drain", "leave", "exit", node="node-1")
    assert [event["event"] for event in told] == ["notice", "drain", "leave", "exit"]
    assert (told[0]["provider"], told[0]["action"]) == ("signal", "terminate")
    assert told[2]["step"] == run.step_of("node-1")
    assert told[3]["reason"] == "drained"
    assert {event["world"] for event in run.events("commit")} == {3, 2}


def test_the_last_to_drain_saves(start_run: StartRun, undisturbed: Digests) -> None:
    run = start_run(world=2)
    run.start("node-0", "node-1")
    run.reach(6, "node-0", "node-1")
    run.kill("node-0", "node-1", sig=signal.SIGTERM)
    assert [run.end(node) for node in ("node-0", "node-1")] == [(0, "")] * 2
    last = run.events("commit")[-1]["step"]
    run.start("node-2")
    run.reach(last + 3, "node-2")
    (restore,) = run.events("restore", node="node-2")
    assert (restore["source"], restore["step"]) == ("store", last)
    assert_exact(run, undisturbed)


def start_newcomer(run: Run, name: str) -> None:
    """Start it, and come back when it is about to join."""
    run.start(name)
    newcomer = psutil.Process(run.processes[name].pid)
    run.wait_for("the newcomer's connection", newcomer.net_connections)


def test_whoever_waits_is_handed_the_state_before_the_last_one_leaves(
    start_run: StartRun, undisturbed: Digests
) -> None:
    run = start_run(world=1)
    with Conductor(run) as conductor:
        run.start("node-0", **conductor.environment)
        run.reach(3, "node-0")
        conductor.arm("drain.before-leave")
        run.kill("node-0", sig=signal.SIGTERM)
        conductor.wait_at("drain.before-leave")
        start_newcomer(run, "node-1")
    assert run.end("node-0") == (0, "")
    last = run.step_of("node-0")
    run.reach(last + 3, "node-1")
    assert_exact(run, undisturbed)
    (restore,) = run.events("restore", node="node-1")
    # From the store when the newcomer was a moment too late to be handed it.
    assert (restore["source"], restore["step"]) in {("peer", last - 1), ("store", last)}
    assert run.abandoned("node-0", "node-1") == []


def test_a_newcomer_waits_for_the_snapshot_of_the_last_to_leave(
    start_run: StartRun, undisturbed: Digests
) -> None:
    run = start_run(world=1)
    with Conductor(run) as conductor:
        run.start("node-0", **conductor.environment)
        run.reach(3, "node-0")
        conductor.arm("drain.before-leave")
        run.kill("node-0", sig=signal.SIGTERM)
        conductor.wait_at("drain.before-leave")
        conductor.arm("snapshot.before-rename")
        conductor.let_go()
        conductor.wait_at("snapshot.before-rename")
        start_newcomer(run, "node-1")
        assert run.stays(lambda: not run.events("join", node="node-1"), for_s=0.3)
    assert run.end("node-0") == (0, "")
    last = run.step_of("node-0")
    run.reach(last + 1, "node-1")
    assert_exact(run, undisturbed)
    (restore,) = run.events("restore", node="node-1")
    assert (restore["source"], restore["step"]) == ("store", last)


@pytest.mark.parametrize(
    ("cloud", "action"), [("aws", "terminate"), ("gcp", "preempt"), ("azure", "preempt")]
)
def test_a_spot_notice_drains(
    start_run: StartRun, undisturbed: Digests, cloud: str, action: str
) -> None:
    run = start_run(world=2)

    async def attack() -> float:
        async with MetadataService(provider=cloud) as service:
            for node in ("node-0", "node-1"):
                await service.add(Instance(node=node, zone="a", family="f", pool="spot"))
            for node in ("node-0", "node-1"):
                run.start(node, **service.environment(node))
            await asyncio.to_thread(run.reach, 5, "node-0", "node-1")
            deadline_s = service.publish("node-1", lead_s=30.0)
            assert await asyncio.to_thread(run.end, "node-1") == (0, "")
            assert (service.reads("node-0"), service.reads("node-1")) == (0, 1)
            return deadline_s

    deadline_s = asyncio.run(attack())
    (notice,) = run.events("notice")
    assert (notice["node"], notice["provider"], notice["action"]) == ("node-1", cloud, action)
    assert notice["deadline_wall_s"] == (None if cloud == "gcp" else deadline_s)
    run.reach(run.step_of("node-1") + 3, "node-0")
    assert run.abandoned("node-0", "node-1") == []
    assert_exact(run, undisturbed)


def test_without_a_coordinator_a_worker_ends_with_one_line(start_run: StartRun) -> None:
    run = start_run(world=2)
    run.start("node-0", "node-1")
    run.reach(2, "node-0", "node-1")
    run.kill("coordinator")
    for node in ("node-0", "node-1"):
        status, error = run.end(node)
        assert status == 1
        assert error.startswith(f"minimal: the coordinator at {run.address} is gone: ")
        assert error.count("\n") == 1
    assert [e["reason"] for e in run.events("exit")] == ["coordinator gone"] * 2


def test_a_restarted_coordinator_repeats_no_generation(
    start_run: StartRun, undisturbed: Digests
) -> None:
    run = start_run(world=1)
    run.start("node-0")
    run.reach(7, "node-0")
    run.kill("coordinator")
    run.end("coordinator")
    run.end("node-0")
    run.start_coordinator()
    run.start("node-1")
    run.reach(run.step_of("node-0") + 3, "node-1")
    assert_exact(run, undisturbed)
    first, second = (run.events("begin", node=node) for node in ("node-0", "node-1"))
    assert first[-1]["generation"] < second[0]["generation"]


@pytest.mark.parametrize(
    "point", ["snapshot.before-rename", "step.before-commit", "step.after-commit"]
)
def test_death_at_the_worst_moments(start_run: StartRun, undisturbed: Digests, point: str) -> None:
    run = start_run(world=2)
    with Conductor(run) as conductor:
        run.start("node-0", "node-1", **conductor.environment)
        run.reach(6, "node-0", "node-1")
        conductor.arm(point)
        victim = conductor.wait_at(point)
        run.kill(victim)
        run.end(victim)
    (alive,) = {"node-0", "node-1"} - {victim}
    run.reach(run.step_of(alive) + 7, alive)
    assert_exact(run, undisturbed)
    for path in run.store.glob("checkpoint-*.json"):
        assert json.loads(path.read_text())["state"]["step"] == int(path.stem.split("-")[1])
    assert run.events("snapshot")[-1]["node"] == alive


def test_what_is_missing_is_named(start_run: StartRun) -> None:
    run = start_run(world=1)
    run.start("node-0", CHAOSSPOT_STORE="")
    assert run.end("node-0") == (1, "minimal: CHAOSSPOT_STORE is not set\n")


def test_numbers_survive_json() -> None:
    numbers: list[Any] = [0.1, 1e-320, -0.0, 2.0**-1074, 1.7976931348623157e308]
    assert [x.hex() for x in json.loads(json.dumps(numbers))] == [x.hex() for x in numbers]
