"""Whom a signal reaches: all of a tree, its main processes alone, or one child."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from waiting import until

from chaosspot.schedule import Node

pytestmark = pytest.mark.anyio
MakeNode = Callable[[str], Node]


def is_ready(family: Any, name: str, times: int) -> Callable[[], bool]:
    log = family.log(name)
    return lambda: log.exists() and log.read_text().count("ready") >= times


@pytest.mark.parametrize("scope", ["tree", "main"])
async def test_whom_sigterm_reaches(
    cluster_in: Any, family: Any, make_node: MakeNode, scope: str
) -> None:
    """Each rank of this family ends when it gets SIGTERM; its child tells if it got one too."""
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "witness", ranks=2))
        await until(is_ready(family, "node-0", 4))
        gone = (await cluster.terminate(["node-0"], grace_s=20.0, scope=scope))["node-0"]
        assert family.log("node-0").read_text().count("child got it") == (
            2 if scope == "tree" else 0
        )
        assert gone.code == 0
        assert not gone.by_itself


async def test_what_the_main_processes_leave_has_a_moment_and_not_the_whole_grace(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "witness", ranks=2))
        await until(is_ready(family, "node-0", 4))
        asked = time.monotonic()
        gone = (await cluster.terminate(["node-0"], grace_s=30.0, scope="main"))["node-0"]
        assert 1.9 < gone.t - asked < 6.0
        assert family.alive() == []


async def test_the_grace_bounds_a_main_process_that_ignores_sigterm(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "stubborn"))
        await until(is_ready(family, "node-0", 1))
        asked = time.monotonic()
        gone = (await cluster.terminate(["node-0"], grace_s=0.4, scope="main"))["node-0"]
        assert 0.4 <= gone.t - asked < 1.5
        assert gone.code == -signal.SIGKILL


async def test_the_youngest_leaf_is_killed_and_never_a_main_process(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "nested"))
        await until(is_ready(family, "node-0", 1))
        main, *others = sorted(family.alive(), key=lambda process: process.create_time())
        assert len({process.create_time() for process in others}) == 3
        assert others[0].children() == [others[1]]
        for victim in others[::-1]:
            asked = time.monotonic()
            t = await cluster.kill_child("node-0")
            assert t is not None
            assert asked <= t <= time.monotonic()
            others.pop()
            assert {p.pid for p in family.alive()} == {main.pid, *(p.pid for p in others)}
            assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
        assert await cluster.kill_child("node-0") is None
        assert [process.pid for process in family.alive()] == [main.pid]
        assert [node.name for node in cluster.alive()] == ["node-0"]


async def test_an_orphan_is_a_child_too_and_a_dead_node_has_none(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "tree"))
        await until(is_ready(family, "node-0", 1))
        await until(lambda: family.asleep() == 4)
        for left in (3, 2, 1):
            assert await cluster.kill_child("node-0") is not None
            assert len(family.alive()) == left
        assert await cluster.kill_child("node-0") is None
        await cluster.kill(["node-0"])
        assert await cluster.kill_child("node-0") is None
