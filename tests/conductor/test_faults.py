"""Each kind of fault on real processes: what it does to a trainer, and the verdict on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaosspot import Verdict, trainers
from chaosspot import history as h
from chaosspot.cluster.throttle import lacking
from chaosspot.misbehaviour import BlackHole, Latency, Status
from chaosspot.schedule import (
    ClusterSpec,
    DiskFull,
    Group,
    Grow,
    Hold,
    Kill,
    KillChild,
    Misbehave,
    Notice,
    Pause,
    Schedule,
    SlowFlash,
    Target,
    Terminate,
    Trigger,
)
from chaosspot.trainers import Promises, Timeouts, Trainer
from chaosspot.undo import heal_dead_runs, mounts
from chaosspot.verdict import Outcome

Attack = Callable[..., Verdict]

SOON = Trigger(at_step=15)
ONE = Target(count=1)
COORDINATOR = Target(role="coordinator")


def told(verdict: Verdict, kind: type) -> list[Any]:
    history = h.read(Path(verdict.run) / "history.jsonl")
    return [record for record in history if isinstance(record, kind)]


def effects(verdict: Verdict) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for effect in told(verdict, h.FaultEffect):
        found.setdefault(effect.what, []).append(effect)
    return found


def outcomes(verdict: Verdict) -> dict[str, Outcome]:
    return {finding.oracle: finding.outcome for finding in verdict.findings}


def scripted(code: str, **fields: Any) -> Trainer:
    """A trainer that is a script; it commits a step every 20 ms when it calls ``step()``."""
    head = """
import os, signal, subprocess, sys, time
from chaosspot import probe
LIFE = int(os.environ["CHAOSSPOT_INCARNATION"])
def step(number, **more):
    at = dict(step=number, generation=LIFE, world=1)
    probe.emit("begin", **at)
    time.sleep(0.02)
    probe.emit("commit", **at, **more)
"""
    fields.setdefault("timeouts", Timeouts(start_s=10.0, stall_s=3.0, run_s=40.0))
    text = (head + code).replace("{", "{{").replace("}", "}}")
    return Trainer(name="scripted", command=("{python}", "-c", text), **fields)


def between(records: list[Any], start_t: float, end_t: float) -> list[Any]:
    return [record for record in records if start_t < record.t < end_t]


# Nodes that live on.


def test_a_paused_node_does_nothing_and_takes_part_again(attack: Attack) -> None:
    verdict = attack(Pause(on=SOON, target=ONE, duration_s=1.5))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (paused,) = effects(verdict)["paused"]
    (healed,) = told(verdict, h.FaultHealed)
    assert 1.4 < healed.t - paused.t < 4.0
    commits = [r for r in told(verdict, h.Commit) if r.node == paused.node]
    assert between(commits, paused.t, paused.t + 1.4) == []
    assert [r for r in commits if r.t > healed.t]
    assert told(verdict, h.NodeGone) == []
    assert verdict.measured["rework_steps"] == 0


def test_a_node_that_is_killed_while_it_is_paused_is_a_loss_like_any(attack: Attack) -> None:
    verdict = attack(
        Pause(on=SOON, target=Target(nodes=("node-1",)), duration_s=2.0),
        Kill(
            on=Trigger(at_step=15, delay_s=0.7),
            target=Target(nodes=("node-1",)),
            replace_after_s=0.2,
        ),
    )
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (paused,), (gone,) = effects(verdict)["paused"], effects(verdict)["gone"]
    assert 0.0 < gone.t - paused.t < 1.9
    assert heal_dead_runs() == []


def test_a_held_thread_stays_where_it_is_and_the_others_go_on(attack: Attack) -> None:
    code = """
import threading
def beat():
    while True:
        probe.emit("beat")
        time.sleep(0.05)
threading.Thread(target=beat, daemon=True).start()
for number in range(1, 10**9):
    probe.point("step.middle")
    step(number)
"""
    trainer = scripted(code, promises=Promises(recovery_s=5.0, rejoins=True))
    verdict = attack(
        Hold(on=Trigger(point="step.middle", nth=20), duration_s=1.5), trainer=trainer, nodes=1
    )
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (held,), (healed,) = effects(verdict)["held"], told(verdict, h.FaultHealed)
    assert 1.4 < healed.t - held.t < 4.0
    assert between(told(verdict, h.Commit), held.t, healed.t) == []
    beats = [r for r in told(verdict, h.Other) if r.name == "beat"]
    assert len(between(beats, held.t, healed.t)) > 10


def test_the_minimal_trainer_waits_for_a_held_member(attack: Attack) -> None:
    verdict = attack(Hold(on=Trigger(point="step.before-commit", nth=40), duration_s=1.5))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert [effect.what for effect in told(verdict, h.FaultEffect)] == ["held"]


LOADER = """
def load():
    return subprocess.Popen(["/bin/sleep", "1000"])
loader = load()
for number in range(1, 10**9):
    if loader.poll() is not None:
        probe.emit("loader", code=loader.returncode)
        if RESTARTS: loader = load()
        else: sys.exit(1)
    step(number)
"""


def test_a_child_is_killed_and_a_trainer_that_replaces_it_goes_on(attack: Attack) -> None:
    trainer = scripted("RESTARTS = True" + LOADER, promises=Promises(recovery_s=5.0))
    verdict = attack(KillChild(on=SOON, target=ONE), trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (effect,) = effects(verdict)["child-gone"]
    (noticed,) = [r for r in told(verdict, h.Other) if r.name == "loader"]
    assert (noticed.node, noticed.extra["code"]) == (effect.node, -9)
    assert told(verdict, h.NodeGone) == []


def test_a_trainer_that_dies_with_its_child_fails(attack: Attack) -> None:
    trainer = scripted("RESTARTS = False" + LOADER, promises=Promises(recovery_s=2.0))
    verdict = attack(KillChild(on=SOON, target=ONE), trainer=trainer, nodes=1)
    assert verdict.outcome is Outcome.FAIL, verdict.findings
    assert verdict.primary is not None
    assert verdict.primary.oracle == "progress"


def test_killing_a_child_where_there_is_none_proves_nothing(attack: Attack) -> None:
    verdict = attack(KillChild(on=SOON, target=ONE))
    assert verdict.outcome is Outcome.UNKNOWN, verdict.findings
    effect = next(f for f in verdict.findings if f.oracle == "effect")
    assert "kill-child had no effect on node-" in effect.message


def test_more_nodes_join_a_running_job(attack: Attack) -> None:
    verdict = attack(Grow(on=SOON, count=2))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert {effect.node for effect in effects(verdict)["up"]} == {"node-3", "node-4"}
    assert {r.world for r in told(verdict, h.Commit)} >= {3, 5}
    assert {r.node for r in told(verdict, h.Commit)} == {f"node-{i}" for i in range(5)}


@pytest.mark.skipif(not mounts.may_mount(), reason="may not mount")
def test_a_full_disk_gives_the_kernels_error_on_its_node_and_for_its_time(attack: Attack) -> None:
    code = """
for number in range(1, 10**9):
    error = 0
    shard = os.environ["CHAOSSPOT_FLASH"] + "/shard"
    try:
        with open(shard + ".new", "wb") as file:
            file.write(bytes(1 << 16))
        os.rename(shard + ".new", shard)
    except OSError as caught:
        error = caught.errno
    step(number)
    probe.emit("wrote", error=error)
"""
    plan = Schedule(
        cluster=ClusterSpec(group=(Group(count=2, flash_bytes=1 << 20),)),
        fault=(DiskFull(on=SOON, target=ONE, duration_s=1.0),),
    )
    trainer = scripted(code, promises=Promises(recovery_s=5.0))
    verdict = attack(schedule=plan, trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (full,), (healed,) = effects(verdict)["full"], told(verdict, h.FaultHealed)
    wrote = [r for r in told(verdict, h.Other) if r.name == "wrote"]
    mine = [r for r in wrote if r.node == full.node]
    assert {r.extra["error"] for r in wrote if r.node != full.node} == {0}
    assert {r.extra["error"] for r in mine if r.t < full.t - 0.1} == {0}
    assert {r.extra["error"] for r in between(mine, full.t + 0.2, full.t + 0.9)} == {28}
    assert {r.extra["error"] for r in mine if r.t > healed.t + 0.2} == {0}
    assert not (Path(verdict.run) / "nodes").exists()


@pytest.mark.skipif(lacking(Path("/tmp")) is not None, reason="no slow drive here")
def test_a_slow_flash_delays_what_is_synced(attack: Attack) -> None:
    code = """
shard = os.environ["CHAOSSPOT_FLASH"] + "/shard"
for number in range(1, 10**9):
    start = time.monotonic()
    with open(shard, "wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    probe.emit("wrote", seconds=time.monotonic() - start)
    step(number)
"""
    fault = SlowFlash(on=SOON, target=ONE, write_bytes_per_s=2 << 20, duration_s=3.0)
    trainer = scripted(code, promises=Promises(recovery_s=5.0))
    verdict = attack(fault, trainer=trainer, nodes=2)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (slowed,) = effects(verdict)["slowed"]
    wrote = [r for r in told(verdict, h.Other) if r.name == "wrote"]
    mine = [r for r in wrote if r.node == slowed.node]
    meanwhile = between(mine, slowed.t + 0.6, slowed.t + 2.9)
    assert min(r.extra["seconds"] for r in meanwhile) > 0.4  # 1 MiB at 2 MiB/s
    assert len(meanwhile) <= 6
    assert min(r.extra["seconds"] for r in mine if r.t < slowed.t) < 0.4


# Notices and signals.


def test_a_notice_that_is_withdrawn_leaves_the_node_to_those_who_wait(attack: Attack) -> None:
    fault = Notice(on=SOON, target=ONE, lead_s=30.0, withdraw_after_s=0.5)
    verdict = attack(fault, trainer="suites/sick/deaf")
    assert verdict.outcome is Outcome.PASS, verdict.findings
    seen = effects(verdict)
    assert set(seen) == {"published", "withdrawn"}
    assert 0.4 < seen["withdrawn"][0].t - seen["published"][0].t < 3.0
    assert told(verdict, h.NodeGone) == []


@pytest.mark.parametrize(
    "fault",
    [
        Notice(on=Trigger(point="step.after-commit", nth=30), lead_s=20.0, replace_after_s=0.2),
        Terminate(on=Trigger(point="step.after-commit", nth=30), grace_s=20.0, replace_after_s=0.2),
    ],
    ids=["notice", "terminate"],
)
def test_who_is_told_at_a_point_to_leave_can_do_so(
    attack: Attack, fault: Notice | Terminate
) -> None:
    verdict = attack(fault)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    (injected,) = told(verdict, h.FaultInjected)
    (gone,) = effects(verdict)["gone"]
    assert gone.t - injected.t < 15.0
    ended = {record.node: record for record in told(verdict, h.NodeGone)}
    assert ended[gone.node].by_itself or isinstance(fault, Terminate)


def test_who_leaves_before_a_notice_is_withdrawn_has_kept_it(attack: Attack) -> None:
    fault = Notice(on=SOON, target=ONE, lead_s=60.0, withdraw_after_s=30.0)
    verdict = attack(fault)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert set(effects(verdict)) == {"published", "gone"}
    assert outcomes(verdict)["notice"] is Outcome.PASS


TOLD = """
def child():
    signal.signal(signal.SIGTERM, lambda *_: (probe.emit("child-told"), os._exit(0)))
    probe.emit("child-ready")
    while os.getppid() == PARENT: time.sleep(0.02)
    os._exit(0)
PARENT = os.getpid()
signal.signal(signal.SIGTERM, lambda *_: (probe.emit("main-told"), time.sleep(0.3), sys.exit(0)))
if os.fork() == 0: child()
for number in range(1, 10**9): step(number)
"""


@pytest.mark.parametrize("scope", ["tree", "main"])
def test_whom_sigterm_reaches(attack: Attack, scope: str) -> None:
    trainer = scripted(TOLD, promises=Promises(recovery_s=5.0))
    verdict = attack(Terminate(on=SOON, target=ONE, grace_s=10.0, scope=scope), trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    names = [r.name for r in told(verdict, h.Other)]
    assert names.count("child-ready") == 3
    assert names.count("main-told") == 1
    assert names.count("child-told") == (1 if scope == "tree" else 0)


# The coordinator, and second lives.


def test_the_minimal_trainer_does_not_survive_its_coordinator(attack: Attack) -> None:
    verdict = attack(Kill(on=SOON, target=COORDINATOR, replace_after_s=0.2))
    assert verdict.outcome is Outcome.FAIL, verdict.findings
    assert verdict.primary is not None
    assert verdict.primary.oracle == "progress"
    ends = [r for r in told(verdict, h.NodeGone) if r.node != "coordinator"]
    assert len(ends) == 3
    assert {(r.by_itself, r.code) for r in ends} == {(True, 1)}
    (injected,) = told(verdict, h.FaultInjected)
    assert injected.nodes == ("coordinator",)
    begun_after = {r.step for r in told(verdict, h.Begin) if r.t > injected.t + 0.1}
    assert not begun_after & {r.step for r in told(verdict, h.Commit) if r.t > injected.t + 0.1}


def test_started_again_it_finds_the_new_coordinator_at_the_same_address(attack: Attack) -> None:
    trainer = replace(trainers.load("minimal"), restarts=5)
    trainer = replace(trainer, promises=replace(trainer.promises, peers_hold_state=False))
    verdict = attack(Kill(on=SOON, target=COORDINATOR, replace_after_s=0.3), trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    ups = [r for r in told(verdict, h.NodeUp) if r.role == "coordinator"]
    assert [r.replaces for r in ups] == [None, "coordinator"]
    assert {r.node for r in told(verdict, h.NodeRestart)} == {"node-0", "node-1", "node-2"}
    assert {r.code for r in told(verdict, h.NodeRestart)} == {1}
    (injected,) = told(verdict, h.FaultInjected)
    before = {r.generation for r in told(verdict, h.Commit) if r.t < injected.t}
    after = {r.generation for r in told(verdict, h.Commit) if r.t > ups[1].t}
    assert after
    assert min(after) > max(before)  # what it remembers in the store


FLASHES = """
shard = os.environ["CHAOSSPOT_FLASH"] + "/shard"
start = int(open(shard).read()) if os.path.exists(shard) else 0
if start: probe.emit("restore", step=start, source="local")
for number in range(start + 1, 10**9):
    step(number)
    with open(shard, "w") as file: file.write(str(number))
    if number == 10 * (LIFE + 1): sys.exit(3)
"""


def test_a_node_whose_trainer_failed_is_started_again_with_its_flash(attack: Attack) -> None:
    verdict = attack(trainer=scripted(FLASHES, restarts=2), nodes=1, steps=10**6)
    restarts = told(verdict, h.NodeRestart)
    assert [(r.node, r.code) for r in restarts] == [("node-0", 3)] * 2
    assert [r.step for r in told(verdict, h.Restore)] == [10, 20]
    assert [(r.step, r.incarnation) for r in told(verdict, h.Commit)] == [
        (number, (number - 1) // 10) for number in range(1, 31)
    ]
    (gone,) = told(verdict, h.NodeGone)
    assert (gone.by_itself, gone.code) == (True, 3)
    assert told(verdict, h.RunStop)[0].reason == "exited"


def test_a_node_that_is_taken_is_not_started_again(attack: Attack) -> None:
    trainer = replace(trainers.load("minimal"), restarts=5)
    verdict = attack(Kill(on=SOON, target=ONE, replace_after_s=0.2), trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert told(verdict, h.NodeRestart) == []
    assert len(told(verdict, h.NodeUp)) == 5  # the coordinator, three, and one that came


def test_a_run_goes_on_after_the_last_fault_is_healed(attack: Attack) -> None:
    code = "for number in range(1, 10**9): step(number)"
    trainer = scripted(code, promises=Promises(recovery_s=5.0))
    verdict = attack(
        Kill(on=SOON, target=Target(nodes=("node-1",))),
        Notice(on=SOON, target=Target(nodes=("node-2",)), lead_s=30.0, withdraw_after_s=2.0),
        trainer=trainer,
    )
    assert verdict.outcome is Outcome.PASS, verdict.findings
    last = max(healed.t for healed in told(verdict, h.FaultHealed))
    assert len({r.step for r in told(verdict, h.Commit) if r.t > last}) >= 10


# What the metadata service says.


def test_a_metadata_service_that_fails_costs_nothing_and_is_over_afterwards(
    attack: Attack,
) -> None:
    errors = Misbehave(
        on=SOON, target=Target(role="worker"), how=Status(status=503), duration_s=2.0
    )
    verdict = attack(errors)
    verdict.check()
    assert {effect.node for effect in effects(verdict)["misbehaved"]} == {
        f"node-{number}" for number in range(3)
    }
    assert {"effect", "progress", "equality"} <= outcomes(verdict).keys()


def test_a_misbehaviour_that_nobody_meets_has_no_effect(attack: Attack) -> None:
    trainer = scripted("for number in range(1, 10**6): step(number)")
    late = Misbehave(on=SOON, how=Latency(delay_s=1.0), duration_s=0.5)
    verdict = attack(late, trainer=trainer, nodes=1)
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.primary is not None
    assert verdict.primary.oracle == "effect"


@pytest.mark.long
def test_a_notice_that_cannot_be_read_is_not_kept(attack: Attack) -> None:
    hidden = Misbehave(on=SOON, target=Target(role="worker"), how=BlackHole(), duration_s=6.0)
    notice = Notice(on=replace(SOON, delay_s=0.2), target=ONE, lead_s=3.0)
    verdict = attack(hidden, notice)
    assert outcomes(verdict)["notice"] is Outcome.FAIL


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_nodes_ask_the_cloud_that_the_cluster_is_on(attack: Attack, cloud: str) -> None:
    trainer = scripted(
        """
print("told:", sorted(name for name in os.environ if "METADATA" in name), flush=True)
for number in range(1, 10**6): step(number)
"""
    )
    kill = Kill(on=SOON, target=ONE, replace_after_s=0.1)
    verdict = attack(kill, trainer=trainer, nodes=1, cloud=cloud)
    logs = (Path(verdict.run) / "logs" / "node-0.log").read_text()
    told_of = {name for name in ("AWS", "GCE", "AZURE") if f"'{name}_" in logs}
    assert told_of == {{"gcp": "GCE", "azure": "AZURE"}[cloud]}
