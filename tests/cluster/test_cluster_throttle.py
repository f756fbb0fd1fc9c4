"""Slow flashes: every process of the node and nobody else writes slowly, and all is undone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from chaosspot.cluster import Launch
from chaosspot.cluster.processes import unsupported
from chaosspot.cluster.throttle import lacking
from chaosspot.schedule import ClusterSpec, FileError, Group, Node, Schedule, SlowFlash, Trigger
from chaosspot.undo import Lease, throttles

pytestmark = pytest.mark.anyio
MakeNode = Callable[[str], Node]

needs_groups = pytest.mark.skipif(lacking(Path("/tmp")) is not None, reason="no slow drive here")
SLOW = SlowFlash(on=Trigger(at_s=1.0), write_bytes_per_s=1_000_000)


def groups(lease: Lease) -> dict[str, set[int]]:
    """Who is in the groups of this run, by node."""
    control = throttles.controller()
    assert control is not None
    prefix = f"{throttles.OWN_GROUPS}{lease.id}."
    found = control.place.glob(f"{prefix}*")
    return {path.name.removeprefix(prefix): throttles.members(path) for path in found}


@needs_groups
async def test_all_of_one_node_is_slowed_and_let_go(
    cluster_in: Any, family: Any, make_node: MakeNode, lease: Lease
) -> None:
    async with cluster_in() as cluster:
        for name in ("node-0", "node-1"):
            await cluster.start(make_node(name), family.launch(name, "tree", ranks=2))
        await until(lambda: family.asleep() == 16)
        assert await cluster.slow_flash("node-0", 1_000_000) is not None
        assert set(groups(lease)) == {"node-0"}
        everybody = {process.pid for process in family.alive()}
        assert len(groups(lease)["node-0"]) == 8
        assert groups(lease)["node-0"] < everybody
        assert await cluster.slow_flash("node-0", 5_000_000) is not None
        assert await cluster.mend_flash("node-0") == 0  # none of them writes
        assert len(groups(lease)["node-0"]) == 8, "the first limit holds still"
        assert await cluster.mend_flash("node-0") == 0
        assert groups(lease) == {}
        assert {process.pid for process in family.alive()} == everybody
        assert await cluster.slow_flash("node-0", 1_000_000) is not None
        assert await cluster.mend_flash("node-0") == 0


@needs_groups
async def test_a_node_that_is_killed_while_it_is_slow_leaves_no_group(
    cluster_in: Any, family: Any, make_node: MakeNode, lease: Lease
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "tree"))
        await until(lambda: family.asleep() == 4)
        await cluster.slow_flash("node-0", 1_000_000)
        await cluster.kill(["node-0"])
        assert groups(lease) == {}
        assert family.alive() == []
        assert await cluster.mend_flash("node-0") == 0
        assert await cluster.slow_flash("node-0", 1_000_000) is None


@needs_groups
async def test_what_forks_without_end_is_slowed_too(
    cluster_in: Any, family: Any, make_node: MakeNode, lease: Lease
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "bomb"))
        await cluster.slow_flash("node-0", 1_000_000)
        inside = groups(lease)["node-0"]
        assert all(process.pid in inside | groups(lease)["node-0"] for process in family.alive())


WRITER = """
import os, sys
with open(sys.argv[1], "wb") as file:
    while True:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
"""


@needs_groups
@pytest.mark.parametrize("kept", [False, True])
async def test_what_is_written_elsewhere_is_none_of_an_empty_flash(
    cluster_in: Any, make_node: MakeNode, run_directory: Path, kept: bool
) -> None:
    elsewhere = run_directory / "elsewhere"
    launch = Launch(
        argv=(sys.executable, "-I", "-S", "-c", WRITER, str(elsewhere)),
        environments=({},),
        log=run_directory / "log",
    )
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), launch)
        if kept:
            (run_directory / "nodes" / "node-0" / "flash" / "kept").touch()
        await cluster.slow_flash("node-0", 100_000_000)
        await until(elsewhere.exists)
        before = elsewhere.stat().st_size
        await until(lambda: elsewhere.stat().st_size > before + 100_000)
        assert (await cluster.mend_flash("node-0") > 0) == kept


async def test_a_flash_in_memory_is_refused_before_anything_runs(tmp_path: Path) -> None:
    plan = Schedule(
        cluster=ClusterSpec(group=(Group(count=2, flash_bytes=1 << 20),)), fault=(SLOW,)
    )
    with pytest.raises(FileError, match="slow-flash excludes"):
        plan.check()
    found = unsupported(Schedule(fault=(SLOW,)), Path("/dev/shm/not-there/runs"))
    assert found is not None
    assert found.startswith("slow-flash: ")
