"""Nodes as process trees: what a kill takes, what a node's end is, what outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from waiting import until

from chaosspot.cluster import Launch
from chaosspot.cluster.processes import ProcessCluster
from chaosspot.schedule import Node
from chaosspot.undo import Lease

pytestmark = pytest.mark.anyio
MakeNode = Callable[[str], Node]


def said_ready(family: Any, name: str, times: int = 1) -> Callable[[], bool]:
    log = family.log(name)
    return lambda: log.exists() and log.read_text().count("ready") >= times


@pytest.mark.parametrize(("kind", "at_least"), [("plain", 1), ("tree", 4), ("bomb", 8)])
async def test_kill_takes_the_whole_tree(
    cluster_in: Any, family: Any, make_node: MakeNode, kind: str, at_least: int
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", kind))
        await until(said_ready(family, "node-0"))
        await until(lambda: len(family.alive()) >= at_least)
        assert [node.name for node in cluster.alive()] == ["node-0"]
        asked = time.monotonic()
        gone = (await cluster.kill(["node-0"]))["node-0"]
        assert family.alive() == []
        assert asked <= gone.t <= time.monotonic()
        assert time.monotonic() - asked < 1.0
        assert not gone.by_itself
        assert gone.code == -signal.SIGKILL
        assert cluster.alive() == []
        assert await cluster.gone("node-0") == gone
        assert await cluster.kill(["node-0"]) == {"node-0": gone}


async def test_a_chain_of_forks_does_not_outrun_the_kill(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "chain"))
        await until(said_ready(family, "node-0"))
        asked = time.monotonic()
        await cluster.kill(["node-0"])
        assert time.monotonic() - asked < 1.0
        for _ in range(20):
            assert family.alive() == []
            await anyio.sleep(0.005)


async def test_sixteen_nodes_die_at_once(cluster_in: Any, family: Any, make_node: MakeNode) -> None:
    names = [f"node-{index}" for index in range(17)]
    async with cluster_in() as cluster:
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(cluster.start, make_node(name), family.launch(name, "tree"))
        for name in names:
            await until(said_ready(family, name))
        await until(lambda: len(family.alive()) == 17 * 4)
        asked = time.monotonic()
        gone = await cluster.kill(names[:16])
        assert time.monotonic() - asked < 1.0
        assert list(gone) == names[:16]
        assert max(g.t for g in gone.values()) - min(g.t for g in gone.values()) < 0.5
        assert len(family.alive()) == 4
        assert [node.name for node in cluster.alive()] == ["node-16"]


async def test_sixty_four_nodes_start_at_once(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        async with anyio.create_task_group() as tasks:
            for index in range(64):
                name = f"node-{index}"
                tasks.start_soon(cluster.start, make_node(name), family.launch(name, "plain"))
        assert len(cluster.alive()) == 64
    assert family.alive() == []


async def test_terminate_gives_every_process_its_grace(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "polite", ranks=2))
        await until(said_ready(family, "node-0", 2))
        await until(lambda: family.asleep() == 2)
        asked = time.monotonic()
        gone = (await cluster.terminate(["node-0"], grace_s=30.0))["node-0"]
        assert time.monotonic() - asked < 5.0
        assert family.alive() == []
        assert not gone.by_itself
        assert gone.code == 0


async def test_terminate_kills_what_ignores_it(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "stubborn"))
        await until(said_ready(family, "node-0"))
        asked = time.monotonic()
        gone = (await cluster.terminate(["node-0"], grace_s=0.5))["node-0"]
        assert 0.5 <= gone.t - asked < 1.5
        assert family.alive() == []
        assert gone.code == -signal.SIGKILL


async def test_a_kill_cuts_a_grace_short(cluster_in: Any, family: Any, make_node: MakeNode) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "stubborn"))
        await until(said_ready(family, "node-0"))
        asked = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: cluster.terminate(["node-0"], grace_s=60.0))
            await anyio.sleep(0.05)
            await cluster.kill(["node-0"])
        assert time.monotonic() - asked < 2.0


async def test_a_node_ends_by_itself(cluster_in: Any, family: Any, make_node: MakeNode) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("good"), family.launch("good", "exit", "0", ranks=3))
        await cluster.start(make_node("bad"), family.launch("bad", "exit", "7", ranks=3))
        good, bad = await cluster.gone("good"), await cluster.gone("bad")
        assert (good.by_itself, good.code) == (True, 0)
        assert (bad.by_itself, bad.code) == (True, 7)
        assert await cluster.kill(["bad"]) == {"bad": bad}
        assert await cluster.terminate(["bad"], grace_s=1.0) == {"bad": bad}


async def test_a_node_lives_while_a_grandchild_does(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        began = time.monotonic()
        await cluster.start(make_node("brief"), family.launch("brief", "brief"))
        await cluster.start(make_node("node-0"), family.launch("node-0", "straggler"))
        gone = await cluster.gone("brief")
        assert gone.by_itself
        assert gone.t - began > 0.3
        assert family.alive()
        assert [node.name for node in cluster.alive()] == ["node-0"]
        gone = await cluster.gone("node-0")
        assert gone.by_itself
        assert gone.code == 0
        assert 2.0 <= gone.t - began < 5.0
        assert family.alive() == []


async def test_flash_dies_with_the_node_unless_kept(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    node = make_node("node-0")
    async with cluster_in() as cluster:
        flash = cluster.flash("node-0")

        async def start() -> None:
            await cluster.start(node, family.launch("node-0", "plain"))

        await start()
        (flash / "snapshot").mkdir()
        (flash / "snapshot" / "shard").write_text("x")
        await cluster.kill(["node-0"], keep_flash=True)
        assert (flash / "snapshot" / "shard").exists()
        await start()
        assert (flash / "snapshot" / "shard").exists()
        await cluster.kill(["node-0"])
        assert not flash.exists()
        await start()
        assert list(flash.iterdir()) == []
        await cluster.kill(["node-0"], keep_flash=True)
    assert not flash.exists()


async def test_names_that_are_wrong(cluster_in: Any, family: Any, make_node: MakeNode) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "plain"))
        with pytest.raises(ValueError, match="node-0 lives"):
            await cluster.start(make_node("node-0"), family.launch("node-0", "plain"))
        with pytest.raises(ValueError, match=r"\.\./x"):
            await cluster.start(make_node("../x"), family.launch("x", "plain"))
        with pytest.raises(LookupError, match=r"node-9.*started: node-0"):
            await cluster.kill(["node-0", "node-9"])
        assert len(cluster.alive()) == 1


async def test_a_command_that_does_not_exist_is_named(
    cluster_in: Any, family: Any, make_node: MakeNode, tmp_path: Path
) -> None:
    async with cluster_in() as cluster:
        launch = Launch(argv=("no-such-trainer",), environments=({},), log=tmp_path / "log")
        with pytest.raises(FileNotFoundError, match=r"node-0.*no-such-trainer.*No such file"):
            await cluster.start(make_node("node-0"), launch)
        launch = Launch(argv=("/etc/passwd",), environments=({},), log=tmp_path / "log")
        with pytest.raises(PermissionError, match="/etc/passwd"):
            await cluster.start(make_node("node-0"), launch)
        assert cluster.alive() == []
        assert not cluster.flash("node-0").exists()
        await cluster.start(make_node("node-0"), family.launch("node-0", "plain"))
        assert len(cluster.alive()) == 1


async def test_a_rank_gets_what_its_launch_says_and_the_cookies(
    cluster_in: Any, family: Any, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HARNESS", "1")
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "environment"))
        await cluster.gone("node-0")
    said = family.log("node-0").read_text()
    names = [name for name in eval(said[: said.index("]") + 1]) if name != "LC_CTYPE"]
    assert names == ["A", "CHAOSSPOT_RUN", "CHAOSSPOT_TREE"]
    assert f"{os.getcwd()} True" in said
    assert "SIGTERM 0" in said
    assert "SIGHUP 0" in said
    assert said.rstrip().endswith("[0, 1, 2]")


async def test_leaving_kills_everything_even_when_cancelled(
    run_directory: Path, lease: Lease, family: Any, make_node: MakeNode
) -> None:
    with anyio.CancelScope() as scope:
        async with ProcessCluster(run=run_directory, lease=lease) as cluster:
            await cluster.start(make_node("node-0"), family.launch("node-0", "tree"))
            await until(lambda: len(family.alive()) >= 4)
            scope.cancel()
            await anyio.sleep(60)
    assert family.alive() == []


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.005, 0.02, 0.04, 0.06])
async def test_a_cancelled_start_leaves_nothing(
    cluster_in: Any, family: Any, make_node: MakeNode, delay_s: float
) -> None:
    async with cluster_in() as cluster:
        with anyio.move_on_after(delay_s):
            await cluster.start(make_node("node-0"), family.launch("node-0", "tree"))
            await cluster.kill(["node-0"])
        assert family.alive() == []
        assert cluster.alive() == []
        await cluster.start(make_node("node-0"), family.launch("node-0", "plain"))


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.03, 0.06])
async def test_a_kill_may_come_while_a_node_starts(
    cluster_in: Any, family: Any, make_node: MakeNode, delay_s: float
) -> None:
    async with cluster_in() as cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.start, make_node("node-0"), family.launch("node-0", "tree"))
        await anyio.sleep(delay_s)
        await anyio.lowlevel.checkpoint()
        gone = (await cluster.kill(["node-0"]))["node-0"]
        assert not gone.by_itself
        assert family.alive() == []


async def test_a_supervisor_that_is_killed_takes_its_tree_along(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        for name in ("node-0", "node-1"):
            await cluster.start(make_node(name), family.launch(name, "tree"))
            await until(said_ready(family, name))
        await until(lambda: len(family.alive()) == 8)
        supervisor_of("node-0").kill()
        gone = await cluster.gone("node-0")
        assert (gone.by_itself, gone.code) == (False, None)
        assert len(family.alive()) == 4
        assert [node.name for node in cluster.alive()] == ["node-1"]


async def test_a_supervisor_that_is_stopped_is_not_needed(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "tree"))
        await until(said_ready(family, "node-0"))
        await until(lambda: len(family.alive()) == 4)
        supervisor_of("node-0").suspend()
        await cluster.kill(["node-0"])
        assert family.alive() == []


async def test_nodes_survive_their_guardian_but_none_starts_without(
    run_directory: Path, family: Any, make_node: MakeNode
) -> None:
    lease = Lease.open(run_directory)
    async with ProcessCluster(run=run_directory, lease=lease) as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "tree"))
        await until(lambda: len(family.alive()) == 4)
        guardian = guardian_of(lease)
        guardian.kill()
        await until(lambda: not psutil.pid_exists(guardian.pid) or _is_zombie(guardian))
        with pytest.raises(OSError, match="guardian"):
            await cluster.start(make_node("node-1"), family.launch("node-1", "plain"))
        assert len(family.alive()) == 4
        await cluster.kill(["node-0"])
        assert family.alive() == []
    assert "guardian" in "".join(lease.close())


def supervisor_of(name: str) -> psutil.Process:
    (found,) = [p for p in psutil.Process().children(recursive=True) if {name} < words(p)]
    return found


def guardian_of(lease: Lease) -> psutil.Process:
    (found,) = [p for p in psutil.Process().children() if str(lease.directory) in words(p)]
    return found


def words(process: psutil.Process) -> set[str]:
    try:
        return set(process.cmdline())
    except psutil.NoSuchProcess:
        return set()


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
