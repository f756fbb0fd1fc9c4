"""The parts of the conductor, each alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from histories import KILL, Story, loss, undisturbed

from chaosspot import history as h
from chaosspot import probe, trainers
from chaosspot.conductor import rundir, twins
from chaosspot.conductor.decided import decided, ready_t
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.points import Points
from chaosspot.conductor.rundir import RunError
from chaosspot.conductor.tail import Tail
from chaosspot.conductor.twins import Twin
from chaosspot.schedule import ClusterSpec, Group, Kill, Pause, Trigger
from chaosspot.trainers import Final, Patterns

# decided


def test_an_attack_is_decided_when_all_came_back_and_settled() -> None:
    evidence = loss(steps=10).evidence(KILL)
    last = max(c.step for c in evidence.commits)
    before = 6  # the first step after the loss, which is also beyond the step before it
    assert decided(evidence, now=20.0, settle_steps=last - before)
    assert not decided(evidence, now=20.0, settle_steps=last - before + 1)


def test_an_attack_is_not_decided_while_a_fault_has_not_acted() -> None:
    assert not decided(undisturbed(50).evidence(KILL), now=60.0, settle_steps=1)
    assert not decided(loss(steps=50).evidence(KILL, KILL), now=60.0, settle_steps=1)


def test_waiting_for_recovery_ends_when_the_bound_is_exceeded_by_half() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-1")
    evidence = story.evidence(KILL, recovery_s=10.0)
    assert not decided(evidence, now=20.0, settle_steps=1)
    assert decided(evidence, now=20.2, settle_steps=1)


def test_who_is_started_again_may_show_that_it_does_nothing_but_fail() -> None:
    story = undisturbed(5)
    story.kill(5.1, "node-0")
    story.kill(5.1, "node-1")

    def is_decided(now: float) -> bool:
        return decided(story.evidence(KILL, recovery_s=10.0), now=now, settle_steps=1)

    story.up(5.2, "node-2", replaces="node-1")
    assert is_decided(21.0)
    story.tell(h.NodeRestart, 15.0, "node-2", code=1)
    start_s = story.evidence(KILL).trainer.timeouts.start_s
    assert not is_decided(21.0)
    assert not is_decided(15.0 + start_s)
    assert is_decided(15.1 + start_s)  # it has not even begun
    story.tell(h.NodeRestart, 19.0, "node-2", code=1)
    assert not is_decided(21.0)
    story.tell(h.NodeRestart, 20.0, "node-2", code=1)
    assert is_decided(21.0)  # three in a row


def test_a_fault_that_heals_after_the_bound_leaves_time_to_come_back() -> None:
    story = undisturbed(5)
    story.tell(h.FaultInjected, 5.1, fault=0, kind="pause", nodes=("node-1",))
    story.tell(h.FaultEffect, 5.1, "node-1", fault=0, what="paused")
    story.tell(h.FaultHealed, 25.1, fault=0)
    evidence = story.evidence(Pause(on=Trigger(at_s=1.0), duration_s=20.0), recovery_s=10.0)
    assert not decided(evidence, now=30.0, settle_steps=1)
    assert decided(evidence, now=30.2, settle_steps=1)


def test_a_job_that_still_repeats_what_it_lost_is_waited_for() -> None:
    story = undisturbed(9)
    story.kill(9.1, "node-1")
    for step in (2, 3, 4):
        story.step(18.0 + step, step, "node-0", generation=2)
    evidence = story.evidence(KILL, recovery_s=10.0)
    assert not decided(evidence, now=30.0, settle_steps=1)
    assert decided(evidence, now=32.1, settle_steps=1)  # the last commit was at 22.0


def test_a_replacement_must_come_and_commit() -> None:
    fault = Kill(on=Trigger(at_s=1.0), replace_after_s=5.0)
    story = loss(steps=30)
    assert not decided(story.evidence(fault), now=40.0, settle_steps=5)
    story.up(31.0, "node-2", replaces="node-1")
    assert not decided(story.evidence(fault), now=40.0, settle_steps=5)
    for step in range(31, 40):
        story.step(1.0 + step, step, "node-0", "node-2", generation=3)
    assert decided(story.evidence(fault), now=41.0, settle_steps=5)


def test_a_replacement_that_ended_at_once_is_followed_by_as_many_steps() -> None:
    fault = Kill(on=Trigger(at_s=1.0), replace_after_s=5.0)
    story = loss(steps=30)
    story.up(29.0, "node-2", replaces="node-1")
    story.gone(30.0, "node-2", by_itself=True, code=0)
    assert not decided(story.evidence(fault), now=31.0, settle_steps=5)
    for step in range(31, 37):
        story.step(1.0 + step, step, "node-0", generation=2)
    assert decided(story.evidence(fault), now=41.0, settle_steps=5)


def test_ready_is_when_the_last_worker_committed_first() -> None:
    story = Story()
    story.commit(1.0, 1, "node-0")
    story.commit(2.0, 2, "node-0")
    story.commit(3.0, 3, "node-0", "node-1")
    assert ready_t(story.evidence(), 2) == 3.0
    assert ready_t(story.evidence(), 3) is None


# tail


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def event(step: int, **fields: object) -> str:
    header = {"t": 1.0, "wall": 1.0, "boot": "b", "node": "n", "rank": 0, "incarnation": 0}
    return json.dumps({**header, "pid": 1, "event": "commit", "step": step, **fields}) + "\n"


def steps(tail: Tail) -> list[int]:
    return [record.step for record in tail.poll() if isinstance(record, h.Commit)]


def test_the_tail_reads_each_complete_line_once(tmp_path: Path) -> None:
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=None)
    path = tmp_path / "n.0.0.1.jsonl"
    assert steps(tail) == []
    write(path, event(1) + event(2)[:20])
    assert steps(tail) == [1]
    write(path, event(2)[20:])
    write(tmp_path / "m.0.0.1.jsonl", event(7, node="m"))
    assert steps(tail) == [7, 2]
    assert steps(tail) == []
    tail.close()


@pytest.mark.parametrize("line", ["{]\n", "[1]\n", '{"event": "commit"}\n', "\n", "\xff\n"])
def test_a_line_that_is_no_event_is_reported_with_its_node(tmp_path: Path, line: str) -> None:
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=None)
    (tmp_path / "node-3.0.0.1.jsonl").write_bytes(line.encode("latin-1"))
    (record,) = tail.poll()
    assert isinstance(record, h.Malformed)
    assert record.node == "node-3"
    tail.close()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (event(1, node="other"), "other.0.0.1 speaks in the file of n.0.0.1"),
        (event(1, incarnation=-5), "n.-5.0.1 speaks in the file of n.0.0.1"),
        (event(1, event="fault.effect", fault=0, what="gone"), "for the harness to say"),
        (event(1, event="node.gone", by_itself=True), "for the harness to say"),
        (event(1, t=1e12, boot=probe.boot_id()), "in the future"),
        (event(10**18), "step = 1000000000000000000 is no step"),
        (event(-1), "step = -1 is no step"),
        ("[" * 5000 + "\n", ""),
    ],
)
def test_a_trainer_speaks_for_itself_alone(tmp_path: Path, line: str, reason: str) -> None:
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=None)
    write(tmp_path / "n.0.0.1.jsonl", line)
    (record,) = tail.poll()
    assert isinstance(record, h.Malformed)
    assert reason in record.reason
    tail.close()


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n.0.0.1.jsonl")
    (tmp_path / "m.0.0.1.jsonl").mkdir()
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=None)
    assert list(tail.poll()) == []
    tail.close()


def test_logs_are_read_by_patterns(tmp_path: Path) -> None:
    patterns = Patterns(commit=r"step (?P<step>\S+)")
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=patterns)
    write(tmp_path / "node-1.log", "hello\nstep 3 done\nstep three\n")
    commit, malformed = tail.poll()
    assert isinstance(commit, h.Commit)
    assert (commit.node, commit.step, commit.boot) == ("node-1", 3, probe.boot_id())
    assert isinstance(malformed, h.Malformed)
    tail.close()


# points


async def test_only_the_nth_hit_is_held(tmp_path: Path) -> None:
    points = Points(tmp_path)
    order: list[str] = []

    async def reach(node: str) -> None:
        async with await anyio.connect_unix(points.socket) as stream:
            await stream.send(json.dumps({"point": "p", "node": node}).encode() + b"\n")
            await stream.receive(1)
            order.append(f"{node} goes on")

    async with anyio.create_task_group() as tasks:
        await tasks.start(points.serve)

        async def fault() -> None:
            async with points.hold("p", 2) as held:
                order.append(f"{held.node} held")
                assert not list(points.armed.iterdir())

        tasks.start_soon(fault)
        await anyio.wait_all_tasks_blocked()
        assert (points.armed / "p").exists()
        await reach("a")
        await reach("b")
        tasks.cancel_scope.cancel()
    assert order == ["a goes on", "b held", "b goes on"]


async def test_who_is_released_goes_on_while_the_fault_lasts(tmp_path: Path) -> None:
    points = Points(tmp_path)
    over = anyio.Event()

    async with anyio.create_task_group() as tasks:
        await tasks.start(points.serve)

        async def fault() -> None:
            async with points.hold("p", 1) as held:
                held.release()
                await over.wait()

        tasks.start_soon(fault)
        await anyio.wait_all_tasks_blocked()
        async with await anyio.connect_unix(points.socket) as stream:
            await stream.send(json.dumps({"point": "p", "node": "a"}).encode() + b"\n")
            with anyio.fail_after(5.0):
                await stream.receive(1)
        assert not over.is_set()
        over.set()
        tasks.cancel_scope.cancel()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio


# feed


async def test_the_feed_wakes_those_who_wait(tmp_path: Path) -> None:
    with h.Writer(tmp_path / "history.jsonl") as writer:
        feed = Feed(writer, lambda _: None)
        seen: list[int] = []

        async def wait() -> None:
            record = await feed.nth(lambda r: isinstance(r, h.Snapshot), 2)
            seen.append(record.seq)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            for step in (1, 2, 3):
                feed.note(h.Commit, node="n", step=step)
                feed.note(h.Snapshot, node="n", step=step, stage="local")
                await anyio.wait_all_tasks_blocked()
    assert seen == [3]
    assert feed.highest_step == 3
    assert h.read(tmp_path / "history.jsonl") == tuple(feed.records)


# twins


def test_the_twin_of_other_code_or_another_cluster_is_another(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("one")
    trainer = trainers.Trainer(command=("{python}", str(script)), name="mine")
    cluster = ClusterSpec()
    first = twins.cache_path(trainer, cluster)
    assert twins.cache_path(trainer, cluster) == first
    assert twins.cache_path(trainer, ClusterSpec(group=(Group(count=2),))) != first
    script.write_text("two")
    assert twins.cache_path(trainer, cluster) != first


def test_the_twin_depends_on_what_a_script_may_import(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import model")
    (tmp_path / "model.py").write_text("one")
    trainer = trainers.Trainer(command=("{python}", str(tmp_path / "train.py")), name="mine")
    first = twins.cache_path(trainer, ClusterSpec())
    (tmp_path / "model.py").write_text("two")
    assert twins.cache_path(trainer, ClusterSpec()) != first


def test_a_cache_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    twins.keep(tmp_path / "file" / "twins" / "twin.jsonl", Twin(history=b"data"))


def test_the_twin_of_a_module_depends_on_its_package() -> None:
    reference = trainers.load("reference")
    found = {path.name for path in twins.code(reference)}
    assert {"loop.py", "reduction.py", "lighthouse.py"} <= found


def test_a_kept_twin_serves_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "twin.jsonl"
    twin = told(undisturbed(10))
    assert twins.cached(path, 5) is None
    twins.keep(path, twin)
    assert twins.cached(path, 10) == twin
    assert twins.cached(path, 11) is None
    path.write_bytes(b"{broken\n")
    assert twins.cached(path, 1) is None


def told(story: Story, checkpoint: Path | None = None) -> Twin:
    history = b"".join(h.encode(record) for record in story.records)
    return Twin(history=history, checkpoint=checkpoint)


@pytest.mark.parametrize("folder", [False, True])
def test_a_kept_twin_has_its_checkpoint(tmp_path: Path, folder: bool) -> None:
    saved = tmp_path / "run" / "last.json"
    inside = saved / "weights.json" if folder else saved
    inside.parent.mkdir(parents=True)
    inside.write_text("[1.0]")
    path = tmp_path / "twin.jsonl"
    final = Final(at_step=10, checkpoint="deep/last.json")
    twins.keep(path, told(undisturbed(10)))
    assert twins.cached(path, 10, final) is None
    for _ in range(2):  # the second replaces the first
        twins.keep(path, told(undisturbed(10), saved))
    kept = twins.cached(path, 10, final)
    assert kept is not None
    assert kept.checkpoint is not None
    assert not twins.differ(kept, told(undisturbed(10), saved))
    assert not list(tmp_path.glob(".*"))


def test_twins_differ_when_a_step_does() -> None:
    other = undisturbed(4)
    other.step(5.0, 5, "node-0", digest="x")
    assert not twins.differ(told(undisturbed(4)), told(undisturbed(9)))
    assert twins.differ(told(undisturbed(5)), told(other))


def test_twins_differ_when_their_checkpoints_do(tmp_path: Path) -> None:
    for name, weight, at in (("one", 1.0, 1.0), ("two", 1.0, 2.0), ("three", 1.5, 1.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"w": weight, "saved_at": at}))
    one, two, three = (
        told(undisturbed(3), tmp_path / f"{name}.json") for name in ("one", "two", "three")
    )
    assert twins.differ(one, two)
    assert not twins.differ(one, two, ignore=["saved_at"])
    assert twins.differ(one, three, ignore=["saved_at"])


@pytest.mark.parametrize(("steps", "goal"), [(1, 50), (40, 50), (41, 100), (100, 150)])
def test_a_twin_runs_a_margin_further(steps: int, goal: int) -> None:
    assert twins.goal(steps) == goal


# run directories


def test_runs_of_one_second_do_not_share_a_directory(tmp_path: Path) -> None:
    made = {rundir.create(tmp_path, "x", 1) for _ in range(5)}
    assert len(made) == 5
    assert (tmp_path / "latest").resolve() in made


def test_a_run_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file"):
        rundir.create(tmp_path / "file", "x", 1)


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    rundir.write(tmp_path / "a", b"one")
    rundir.write(tmp_path / "a", b"two")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"two"


@pytest.mark.parametrize("missing", ["history.jsonl", "schedule.toml", "trainer.toml"])
def test_a_run_with_a_missing_file_cannot_be_judged(tmp_path: Path, missing: str) -> None:
    (tmp_path / "history.jsonl").touch()
    (tmp_path / "schedule.toml").touch()
    (tmp_path / "trainer.toml").write_text('command = ["x"]')
    rundir.evidence_of(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(RunError, match=missing):
        rundir.evidence_of(tmp_path)
