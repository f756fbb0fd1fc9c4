"""Pauses: the whole tree stands still, a kill still works, and everybody goes on afterwards."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from waiting import until

from chaosspot.cluster import Launch
from chaosspot.schedule import Node
from chaosspot.undo import Lease, pausing

pytestmark = pytest.mark.anyio
MakeNode = Callable[[str], Node]
STEPPER = Path(__file__).with_name("stepper.py")


@pytest.fixture
def counting(tmp_path: Path, family: Any) -> Callable[..., Launch]:
    """A node of processes that count; what they have counted is in ``tmp_path``."""

    def launch(name: str, depth: object = 3, ranks: int = 2) -> Launch:
        argv = (sys.executable, "-I", "-S", str(STEPPER), str(tmp_path), family.number, str(depth))
        return Launch(argv=argv, environments=({},) * ranks, log=family.log(name))

    return launch


def counts(folder: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text() or 0) for path in folder.glob("*.count")}


def states(family: Any) -> list[str]:
    found = []
    for process in family.alive():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            found.append(process.status())
    return sorted(found)


async def all_counting(folder: Path, processes: int) -> None:
    before = counts(folder)
    await until(
        lambda: sum(n > before.get(pid, 0) for pid, n in counts(folder).items()) == processes
    )


async def test_a_pause_stops_every_process_and_all_go_on_after_it(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path, lease: Lease
) -> None:
    async with cluster_in() as cluster:
        for name in ("node-0", "node-1"):
            await cluster.start(make_node(name), counting(name))
        await all_counting(tmp_path, 12)
        asked = time.monotonic()
        paused = await cluster.pause(["node-0", "node-1"])
        assert set(paused) == {"node-0", "node-1"}
        assert all(asked <= t <= time.monotonic() for t in paused.values())
        assert states(family) == ["stopped"] * 12
        assert "pause of node-0" in promises(lease)
        before = counts(tmp_path)
        await anyio.sleep(0.1)  # twenty counts of a process that runs
        assert counts(tmp_path) == before
        assert [node.name for node in cluster.alive()] == ["node-0", "node-1"]
        await cluster.resume(["node-0"])
        await all_counting(tmp_path, 6)
        assert states(family).count("stopped") == 6
        await cluster.resume(["node-1"])
        await all_counting(tmp_path, 12)
        assert not any(text.startswith("pause of") for text in promises(lease))


def promises(lease: Lease) -> list[str]:
    return [undo.describe() for undo in lease._journal.open_promises().values()]


async def test_the_promise_is_on_disk_before_the_first_process_stops(
    cluster_in: Any, counting: Any, make_node: MakeNode, lease: Lease, monkeypatch: Any
) -> None:
    seen = []

    def stop(top: int) -> Any:
        seen.append((lease.directory / "undo.jsonl").read_text())
        return real(top)

    real = pausing.stop
    monkeypatch.setattr(pausing, "stop", stop)
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0"))
        await cluster.pause(["node-0"])
    assert '"kind":"paused"' in seen[0]


async def test_processes_that_are_born_meanwhile_do_not_escape(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0", "spawner", ranks=4))
        await until(lambda: family.log("node-0").read_text().count("ready") == 4)
        for _ in range(20):
            await cluster.pause(["node-0"])
            stopped = {p.pid for p in family.alive()}
            assert set(states(family)) == {"stopped"}
            await anyio.sleep(0.02)
            assert {p.pid for p in family.alive()} == stopped
            await cluster.resume(["node-0"])
            await until(lambda: "stopped" not in states(family))


async def test_a_kill_of_a_paused_node_works_at_once(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path, lease: Lease
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0"))
        await all_counting(tmp_path, 6)
        await cluster.pause(["node-0"])
        asked = time.monotonic()
        gone = (await cluster.kill(["node-0"]))["node-0"]
        assert time.monotonic() - asked < 0.9  # less than it waits before it helps a supervisor
        assert family.alive() == []
        assert gone.code == -signal.SIGKILL
        assert promises(lease) == []
        await cluster.resume(["node-0"])
        assert await cluster.pause(["node-0"]) == {}


async def test_sigterm_to_a_paused_node_acts_by_its_grace(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0"))
        await all_counting(tmp_path, 6)
        await cluster.pause(["node-0"])
        asked = time.monotonic()
        gone = (await cluster.terminate(["node-0"], grace_s=0.3))["node-0"]
        assert 0.3 <= gone.t - asked < 1.5
        assert family.alive() == []


async def test_overlapping_pauses_end_with_the_last(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0", 1, ranks=1))
        await all_counting(tmp_path, 1)
        await cluster.pause(["node-0"])
        await cluster.pause(["node-0"])
        await cluster.resume(["node-0"])
        assert states(family) == ["stopped"]
        await cluster.resume(["node-0"])
        await all_counting(tmp_path, 1)
        await cluster.resume(["node-0"])


async def test_who_was_stopped_before_stays_stopped(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0", 2, ranks=1))
        await all_counting(tmp_path, 2)
        youngest = max(family.alive(), key=lambda process: process.create_time())
        youngest.suspend()
        await until(lambda: youngest.status() == psutil.STATUS_STOPPED)
        await cluster.pause(["node-0"])
        await cluster.resume(["node-0"])
        await all_counting(tmp_path, 1)
        assert youngest.status() == psutil.STATUS_STOPPED


async def test_what_cannot_be_stopped_is_an_error_and_goes_on(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path,
    lease: Lease, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def send(process: Any, number: int) -> bool:
        sent.append(process.pid)
        return (number == signal.SIGSTOP and len(set(sent)) > 1) or real(process, number)

    sent: list[int] = []
    real = pausing.send
    monkeypatch.setattr(pausing, "send", send)
    monkeypatch.setattr(pausing, "_WITHIN_S", 0.3)
    monkeypatch.setattr(pausing, "_TRY_S", 0.1)
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0", 2))
        await all_counting(tmp_path, 4)
        with pytest.raises(OSError, match=r"still running 0.3 s after SIGSTOP: pids \[\d+"):
            await cluster.pause(["node-0"])
        await all_counting(tmp_path, 4)
        assert not any(text.startswith("pause of") for text in promises(lease))


async def test_the_end_of_the_cluster_takes_paused_nodes_along(
    cluster_in: Any, counting: Any, family: Any, make_node: MakeNode, tmp_path: Path, lease: Lease
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), counting("node-0"))
        await all_counting(tmp_path, 6)
        await cluster.pause(["node-0"])
    assert family.alive() == []
    assert promises(lease) == []
