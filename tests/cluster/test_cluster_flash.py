"""Flashes: limited in size, filled and freed, kept over an end by itself, gone at the end."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from waiting import until

from chaosspot.cluster import Launch
from chaosspot.cluster.processes import unsupported
from chaosspot.schedule import ClusterSpec, Group, Node, Schedule
from chaosspot.undo import mounts

pytestmark = pytest.mark.anyio
MakeNode = Callable[[str], Node]
MIB = 1 << 20

needs_mounts = pytest.mark.skipif(not mounts.may_mount(), reason="may not mount")


@pytest.fixture
def small(make_node: MakeNode) -> Callable[[str], Node]:
    return lambda name: replace(make_node(name), flash_bytes=4 * MIB)


def mounted_below(folder: Path) -> list[str]:
    with open("/proc/self/mountinfo") as table:
        return [line.split()[4] for line in table if f" {folder}/" in line]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@needs_mounts
async def test_a_limited_flash_has_its_size_and_goes_with_its_node(
    cluster_in: Any, family: Any, small: MakeNode, run_directory: Path
) -> None:
    async with cluster_in() as cluster:
        flash = cluster.flash("node-0")
        await cluster.start(small("node-0"), family.launch("node-0", "plain"))
        assert mounted_below(run_directory) == [str(flash)]
        space = os.statvfs(flash)
        assert space.f_blocks * space.f_frsize == 4 * MIB
        (flash / "shard").write_bytes(bytes(3 * MIB))
        with pytest.raises(OSError, match="No space left"):
            (flash / "more").write_bytes(bytes(2 * MIB))
        await cluster.kill(["node-0"])
        assert mounted_below(run_directory) == []
        assert not flash.parent.exists()
        await cluster.start(small("node-0"), family.launch("node-0", "plain"))
        assert files(flash) == []
        assert mounted_below(run_directory) == [str(flash)]
    assert mounted_below(run_directory) == []
    assert not (run_directory / "nodes").exists()


@needs_mounts
async def test_filling_leaves_no_space_and_freeing_gives_it_back(
    cluster_in: Any, family: Any, small: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(small("node-0"), family.launch("node-0", "plain"))
        flash = cluster.flash("node-0")
        (flash / "shard").write_bytes(b"x" * MIB)
        assert await cluster.fill_flash("node-0") is not None
        assert os.statvfs(flash).f_bavail == 0
        with pytest.raises(OSError, match="No space left"):
            (flash / "one").write_bytes(b"x")
        assert (flash / "shard").read_bytes() == b"x" * MIB
        await cluster.free_flash("node-0")
        assert os.statvfs(flash).f_bavail * os.statvfs(flash).f_frsize == 3 * MIB
        await cluster.free_flash("node-0")


@needs_mounts
async def test_a_flash_whose_node_is_gone_is_neither_filled_nor_freed(
    cluster_in: Any, family: Any, small: MakeNode, run_directory: Path
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(small("node-0"), family.launch("node-0", "plain"))
        await cluster.fill_flash("node-0")
        await cluster.kill(["node-0"])
        await cluster.free_flash("node-0")
        assert await cluster.fill_flash("node-0") is None
        assert not (run_directory / "nodes" / "node-0").exists()


async def test_a_flash_without_a_limit_is_not_filled(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(make_node("node-0"), family.launch("node-0", "plain"))
        with pytest.raises(OSError, match="is not limited: set flash_bytes"):
            await cluster.fill_flash("node-0")
        assert files(cluster.flash("node-0")) == []


@needs_mounts
async def test_a_flash_in_use_from_outside_is_detached(
    cluster_in: Any, family: Any, small: MakeNode, run_directory: Path
) -> None:
    async with cluster_in() as cluster:
        await cluster.start(small("node-0"), family.launch("node-0", "plain"))
        with (cluster.flash("node-0") / "open").open("w"):
            await cluster.kill(["node-0"])
            assert mounted_below(run_directory) == []
            assert not cluster.flash("node-0").exists()


async def test_a_flash_that_cannot_be_limited_is_an_error_that_says_so(
    cluster_in: Any, family: Any, small: MakeNode, run_directory: Path, monkeypatch: Any
) -> None:
    def refuse(path: Path, **_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(mounts, "mount_tmpfs", refuse)
    async with cluster_in() as cluster:
        with pytest.raises(OSError, match=r"node-0: flash_bytes = 4194304 .*not permitted.*root"):
            await cluster.start(small("node-0"), family.launch("node-0", "plain"))
        assert cluster.alive() == []
        assert not (run_directory / "nodes" / "node-0").exists()


@pytest.mark.parametrize("may", [True, False])
def test_what_this_machine_cannot_make_is_said_before(monkeypatch: Any, *, may: bool) -> None:
    monkeypatch.setattr(mounts, "may_mount", lambda: may)
    plain = Schedule(cluster=ClusterSpec(group=(Group(count=2),)))
    limited = Schedule(cluster=ClusterSpec(group=(Group(count=2), Group(count=1, flash_bytes=MIB))))
    assert unsupported(plain, Path()) is None
    said = unsupported(limited, Path())
    assert (said is None) if may else (said is not None and "flash_bytes = 1048576" in said)


def leaving(family: Any, name: str, flash: Path, code: int, *, keep: bool) -> Launch:
    """A node that writes one file to its flash and ends by itself."""
    script = f"open({str(flash / 'written')!r}, 'a').write('x'); raise SystemExit({code})"
    argv = (sys.executable, "-I", "-S", "-c", script)
    return Launch(argv=argv, environments=({},), log=family.log(name), keep_flash=keep)


@pytest.mark.parametrize("limited", [False, pytest.param(True, marks=needs_mounts)])
@pytest.mark.parametrize("code", [0, 7])
async def test_a_flash_outlives_an_end_by_itself_if_asked_to(
    cluster_in: Any, family: Any, make_node: MakeNode, small: MakeNode, code: int, *, limited: bool
) -> None:
    node = (small if limited else make_node)("node-0")
    async with cluster_in() as cluster:
        flash = cluster.flash("node-0")
        for life in (1, 2):
            await cluster.start(node, leaving(family, "node-0", flash, code, keep=True))
            assert (await cluster.gone("node-0")).by_itself
            assert (flash / "written").read_text() == "x" * life
        await cluster.start(node, leaving(family, "node-0", flash, code, keep=False))
        await cluster.gone("node-0")
        assert not flash.exists()
    assert not flash.parent.parent.exists()


@pytest.mark.parametrize("how", ["kill", "terminate", "kill and keep"])
async def test_a_flash_that_would_outlive_its_tree_goes_when_the_node_is_taken(
    cluster_in: Any, family: Any, make_node: MakeNode, how: str
) -> None:
    async with cluster_in() as cluster:
        flash = cluster.flash("node-0")
        launch = replace(family.launch("node-0", "plain"), keep_flash=True)
        await cluster.start(make_node("node-0"), launch)
        (flash / "shard").write_text("x")
        if how == "terminate":
            await cluster.terminate(["node-0"], grace_s=5.0)
        else:
            await cluster.kill(["node-0"], keep_flash=how == "kill and keep")
        assert flash.exists() == (how == "kill and keep")
    assert not flash.exists()


async def test_a_flash_goes_with_a_tree_that_did_not_end_by_itself(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        launch = replace(family.launch("node-0", "plain"), keep_flash=True)
        await cluster.start(make_node("node-0"), launch)
        await until(lambda: len(family.alive()) == 1)
        (rank,) = family.alive()
        rank.parent().kill()  # its supervisor
        assert not (await cluster.gone("node-0")).by_itself
        assert not cluster.flash("node-0").exists()


async def test_a_node_that_is_taken_after_its_end_loses_the_flash_it_had_kept(
    cluster_in: Any, family: Any, make_node: MakeNode
) -> None:
    async with cluster_in() as cluster:
        flash = cluster.flash("node-0")
        await cluster.start(make_node("node-0"), leaving(family, "node-0", flash, 7, keep=True))
        await cluster.gone("node-0")
        assert flash.exists()
        await cluster.kill(["node-0"])
        assert not flash.exists()


async def test_the_folder_of_a_node_goes_with_its_flash(
    cluster_in: Any, family: Any, make_node: MakeNode, run_directory: Path
) -> None:
    async with cluster_in() as cluster:
        for name in ("node-0", "node-1"):
            await cluster.start(make_node(name), family.launch(name, "plain"))
        await cluster.kill(["node-0"])
        assert files(run_directory / "nodes") == ["node-1"]
    assert not (run_directory / "nodes").exists()
