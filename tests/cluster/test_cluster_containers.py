"""Nodes as containers: what a kill takes, what a node may do, what it reaches, what outlives it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from docked import NEEDS_DAEMON, inspect, left_of
from waiting import until

from chaosspot.cluster import Cut, Launch
from chaosspot.cluster.containers import ContainerCluster
from chaosspot.schedule import COORDINATOR, Node
from chaosspot.undo import Lease, procfs

pytestmark = [pytest.mark.anyio, *NEEDS_DAEMON]

READY_S = 60.0


@pytest.fixture
def containers(run_directory: Path, lease: Lease, state_home: Path) -> Any:
    @asynccontextmanager
    async def opened(**more: Any) -> AsyncIterator[ContainerCluster]:
        with anyio.fail_after(150):
            async with ContainerCluster(run=run_directory, lease=lease, **more) as cluster:
                yield cluster
        assert left_of(state_home) == []

    return opened


def node(name: str, zone: str = "a", **more: Any) -> Node:
    return Node(name=name, zone=zone, family="f", pool="spot", role="worker", **more)


def script(log: Path, text: str, **more: str) -> Launch:
    return Launch(argv=("/bin/sh", "-c", text), environments=(more,), log=log)


def said(log: Path, word: str) -> Callable[[], bool]:
    return lambda: log.exists() and word in log.read_text()


async def test_a_kill_takes_all_of_the_container_and_its_flash(
    containers: Any, family: Any
) -> None:
    async with containers() as cluster:
        await cluster.start(node("node-0"), family.launch("node-0", "tree"))
        await until(said(family.log("node-0"), "ready"), READY_S)
        await until(lambda: len(family.alive()) >= 4, READY_S)
        assert [one.name for one in cluster.alive()] == ["node-0"]
        name = cluster._life("node-0").name
        assert inspect(name)["State"]["Running"]
        asked = time.monotonic()
        gone = (await cluster.kill(["node-0"], keep_flash=True))["node-0"]
        assert family.alive() == []
        assert inspect(name) == {}
        assert asked <= gone.t <= time.monotonic()
        assert (gone.by_itself, gone.code) == (False, -signal.SIGKILL)
        assert cluster.alive() == []
        flash = cluster.flash("node-0")
        assert flash.is_dir()
        # Its next life finds what the one before left, and then it dies with the node.
        (flash / "kept").write_text("x")
        log = family.log("node-0")
        again = script(log, 'ls "$CHAOSSPOT_FLASH"; sleep 600', CHAOSSPOT_FLASH=str(flash))
        await cluster.start(node("node-0"), again)
        await until(said(log, "kept"), READY_S)
        await cluster.kill(["node-0"])
        assert not flash.exists()


async def test_terminate_has_grace_and_an_end_by_itself_has_a_code(
    containers: Any, family: Any
) -> None:
    async with containers() as cluster:
        async with anyio.create_task_group() as tasks:
            for name, kind in (("polite", "polite"), ("stubborn", "stubborn")):
                tasks.start_soon(cluster.start, node(name), family.launch(name, kind))
            bad = family.launch("bad", "exit", "7", ranks=2)
            tasks.start_soon(cluster.start, node("bad"), bad)
        ended = await cluster.gone("bad")
        assert (ended.by_itself, ended.code) == (True, 7)
        for name in ("polite", "stubborn"):
            await until(said(family.log(name), "ready"), READY_S)
        await until(lambda: family.asleep() == 3, READY_S)
        assert (await cluster.terminate(["polite"], grace_s=60.0))["polite"].code == 0
        asked = time.monotonic()
        gone = (await cluster.terminate(["stubborn"], grace_s=0.5))["stubborn"]
        assert gone.t - asked >= 0.5
        assert gone.code == -signal.SIGKILL
        assert family.alive() == []


async def test_a_pause_freezes_it_and_the_frozen_can_be_killed(
    containers: Any, run_directory: Path
) -> None:
    log = run_directory / "logs" / "node-0.log"
    ticks = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.02; done"
    async with containers() as cluster:
        await cluster.start(node("node-0"), script(log, ticks))
        await until(said(log, "tick 3"), READY_S)
        paused = await cluster.pause(["node-0"])
        assert list(paused) == ["node-0"]
        assert inspect(cluster._life("node-0").name)["State"]["Paused"]
        before = log.read_text()
        await anyio.sleep(0.3)  # 15 ticks
        assert log.read_text() == before
        await cluster.resume(["node-0"])
        await until(lambda: log.read_text() != before, READY_S)
        await cluster.pause(["node-0"])
        asked = time.monotonic()
        gone = (await cluster.kill(["node-0"]))["node-0"]
        assert not gone.by_itself
        assert time.monotonic() - asked < 30.0
        await cluster.resume(["node-0"])


async def test_a_child_is_killed_and_its_parent_lives(containers: Any, run_directory: Path) -> None:
    log = run_directory / "logs" / "node-0.log"
    text = "echo begun; sleep 600 & wait $!; echo child $?; sleep 600"
    async with containers() as cluster:
        await cluster.start(node("node-0"), script(log, text))
        await until(said(log, "begun"), READY_S)
        assert await cluster.kill_child("node-0") is not None
        await until(said(log, "child 137"), READY_S)
        assert len(cluster.alive()) == 1


def weighed_as_a_process(container: str) -> bool:
    """Whether it shares its control group with nobody; true where groups are weighed by groups."""
    processor = Path("/sys/fs/cgroup/cpu")  # version 1
    return not (processor / "cpu.shares").exists() or (processor / container).is_dir()


async def test_limits_hold_and_rights_are_few(containers: Any, run_directory: Path) -> None:
    log = run_directory / "logs" / "node-0.log"
    flash = run_directory / "nodes" / "node-0" / "flash"
    text = (
        "grep -h Cap /proc/self/status; touch /usr/x; touch /x; hostname; "
        f"cat /proc/net/route; head -c 2000000 /dev/zero > {flash}/big; echo wrote $?; "
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 600 & done; "
        "echo end; sleep 600"
    )
    limited = node("node-0", flash_bytes=1 << 20, memory_bytes=1 << 26, cpus=0.5, pids=16)
    async with containers() as cluster:
        await cluster.start(limited, script(log, text))
        await until(said(log, "Cannot fork"), READY_S)
        told = log.read_text()
        assert told.count("0000000000000000") == 5
        assert told.count("Read-only file system") == 2
        assert "No space left on device" in told
        routes = [line.split() for line in told.splitlines() if line.startswith("eth")]
        assert len(routes) == 2  # its own two networks, and no way to a gateway
        assert all(route[1] != "00000000" and route[2] == "00000000" for route in routes)
        host = inspect(cluster._life("node-0").name)["HostConfig"]
        assert (host["Memory"], host["MemorySwap"]) == (1 << 26, 1 << 26)
        assert host["CpuQuota"] / host["CpuPeriod"] == 0.5
        assert weighed_as_a_process(inspect(cluster._life("node-0").name)["Id"])
        assert (host["CapDrop"], host["Privileged"], host["PidsLimit"]) == (["ALL"], False, 16)
        assert await cluster.fill_flash("node-0") is not None
        await cluster.free_flash("node-0")


PEERS = (
    "import socket, sys, time\n"
    "for name in sys.argv[1:]: print(name, socket.gethostbyname(name), flush=True)\n"
    "try: socket.gethostbyname('nobody')\n"
    "except OSError: print('nobody is there', flush=True)\n"
    "time.sleep(600)\n"
)


async def test_names_are_known_across_zones_and_nobody_has_no_name(
    containers: Any, run_directory: Path
) -> None:
    logs = run_directory / "logs"
    idle = ("/bin/sleep", "600")
    async with containers() as cluster:
        for other, zone in (("node-1", "a"), ("node-2", "b")):
            launch = Launch(argv=idle, environments=({},), log=logs / f"{other}.log")
            await cluster.start(node(other, zone), launch)
        launch = Launch(argv=idle, environments=({},), log=logs / "coordinator.log")
        await cluster.start(COORDINATOR, launch)
        argv = (sys.executable, "-c", PEERS, "node-1", "node-2", "coordinator")
        asked = time.monotonic()
        log = logs / "node-0.log"
        await cluster.start(node("node-0"), Launch(argv=argv, environments=({},), log=log))
        await until(said(log, "nobody is there"), READY_S)
        assert time.monotonic() - asked < 15.0  # Docker's resolver alone would take 20 s
        found = dict(line.split() for line in log.read_text().splitlines()[:3])
        lives = {name: cluster._life(name) for name in ("node-0", "node-1", "node-2")}
        assert found["node-1"] in lives["node-1"].addresses.values()
        assert found["node-2"] in lives["node-2"].addresses.values()
        shared = lives["node-0"].addresses.keys() & lives["node-2"].addresses.keys()
        assert len(shared) == 1
        assert len(lives["node-0"].addresses.keys() & lives["node-1"].addresses.keys()) == 2


async def test_who_is_cut_off_reaches_nobody_over_any_network(
    containers: Any, run_directory: Path
) -> None:
    logs = run_directory / "logs"
    async with containers() as cluster:
        for index, zone in enumerate("aab"):
            name = f"node-{index}"
            await cluster.start(node(name, zone), script(logs / f"{name}.log", "sleep 600"))
        partitions = cluster._partitions

        def passing(*, to: str = "", by: str = "") -> set[tuple[str, str, str]]:
            from chaosspot.cluster.partitions import _arrivals

            members = cluster._members()
            flows = {
                (a.node.name, b.node.name, network)
                for a in members
                for b in members
                if a is not b
                for network in a.addresses.keys() & b.addresses.keys()
            }
            found = _arrivals(members, flows, within_s=0.5)
            return {f for f in found if (not to or f[1] == to) and (not by or f[0] == by)}

        assert len(passing()) == 8  # two networks within the zone, one across
        number, seen = await cluster.cut(["node-0"], Cut(off="rest"))
        assert list(seen) == ["node-0"]
        assert {flow[:2] for flow in passing()} == {("node-1", "node-2"), ("node-2", "node-1")}
        # Who comes later is cut off as well, before anything runs there.
        await cluster.start(node("node-3"), script(logs / "node-3.log", "sleep 600"))
        assert not passing(to="node-0")
        assert not passing(by="node-0")
        await cluster.mend(number)
        assert len(passing(by="node-0")) == 5
        number, seen = await cluster.cut(["node-2"], Cut(off="zones", one_way=True))
        assert not passing(to="node-2")
        assert len(passing(by="node-2")) == 3
        await cluster.mend(number)
        assert not partitions._active


async def test_the_kernel_kills_for_want_of_memory(containers: Any, run_directory: Path) -> None:
    log = run_directory / "logs" / "node-0.log"
    async with containers() as cluster:
        await cluster.start(node("node-0"), script(log, "echo begun; sleep 600"))
        await until(said(log, "begun"), READY_S)
        t = await cluster.exhaust("node-0")
        assert t is not None
        assert cluster.alive() == []
        assert await cluster.exhaust("node-0") is None


async def test_a_throttled_node_is_held_back_and_a_nameless_one_gets_no_answer(
    containers: Any, run_directory: Path
) -> None:
    log = run_directory / "logs" / "node-0.log"
    async with containers() as cluster:
        await cluster.start(node("node-0"), script(log, "while :; do :; done"))
        assert await cluster.throttled(["node-0"]) == {}
        await cluster.throttle(["node-0"], cpus=0.05)
        with anyio.fail_after(READY_S):
            while not await cluster.throttled(["node-0"]):  # noqa: ASYNC110 - a count of the kernel
                await anyio.sleep(0.02)
        name = cluster._life("node-0").name
        assert inspect(name)["HostConfig"]["CpuQuota"] == 5000
        await cluster.unthrottle(["node-0"])
        assert inspect(name)["HostConfig"]["CpuQuota"] == -1
        assert list(await cluster.hush(["node-0"])) == ["node-0"]
        await cluster.unhush(["node-0"])


async def test_what_cannot_be_started_is_named(containers: Any, run_directory: Path) -> None:
    log = run_directory / "logs" / "node-0.log"
    async with containers() as cluster:
        launch = Launch(argv=("no-such-trainer",), environments=({},), log=log)
        with pytest.raises(FileNotFoundError, match=r"node-0.*no-such-trainer.*No such file"):
            await cluster.start(node("node-0"), launch)
        assert cluster.alive() == []
        assert not cluster.flash("node-0").exists()


async def test_a_name_that_is_taken_is_one_clear_error(
    containers: Any, run_directory: Path, lease: Lease
) -> None:
    from docked import discard, foreign, running

    taken = foreign(f"chaosspot-{lease.id}-node-0.1")
    try:
        async with containers() as cluster:
            log = run_directory / "logs" / "node-0.log"
            with pytest.raises(OSError, match=r"node-0.*chaosspot-.*already in use"):
                await cluster.start(node("node-0"), script(log, "sleep 600"))
            assert cluster.alive() == []
        assert running(taken)  # it has no label of ours
    finally:
        discard(taken)
    assert lease.id not in procfs.holders(procfs.RUN, procfs.everyone().values())
