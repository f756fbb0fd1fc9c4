"""Snapshots on a node's disk outlive a crash at any event: of the process, and of the power.

Whole snapshots are taken with :class:`Flash`, one after the other, and stopped before, within and
after every event of the file system. Recovery then has to find the newest that was complete, or the
one that was being written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from power import Crash, PowerDisk, When

from chaosspot.trainer.agreement import agree
from chaosspot.trainer.restore import Recovery
from chaosspot.trainer.snapshot.disk import Disk
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.image import Entry, Layout
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.parts import Part, SnapshotId
from chaosspot.trainer.snapshot.staging import Loan, host_buffer

BLOCK = 4096
SIZE = 3 * BLOCK + 1000  # three blocks and one that is no multiple of a sector
ENTRY = Entry(dtype="U8", shape=(SIZE,), start=0, stop=SIZE)
LAYOUT = Layout(entries={"ballast": ENTRY}, flat={"ballast": ENTRY}, total_bytes=SIZE)


class Buffers:
    """What recovery needs of a stage."""

    layout = LAYOUT

    def lend(self) -> Loan:
        return Loan(host_buffer(SIZE), lambda _: None)


ROOT = Path("/node/flash")
JOB = "job"


@cache
def state(step: int) -> bytes:
    """Bytes of which no sector equals another, of this step or any other."""
    words = (step * 1_000_003 + at * 2_654_435_761 for at in range(SIZE // 8))
    return b"".join((word % 2**64).to_bytes(8, "little") for word in words)


def flash_on(disk: Disk, keep: int = 2, root: Path = ROOT) -> Flash:
    return Flash(root, keep=keep, disk=disk, writers=1, block_bytes=BLOCK)


@dataclass(frozen=True, kw_only=True)
class Taking:
    """A trainer that takes snapshots of these steps and then ends."""

    steps: tuple[int, ...]
    count: int = 1
    """Parts of each, all on this disk."""
    generation: int = 1
    keep: int = 2
    wrong: Callable[[Disk], Disk] = lambda disk: disk
    """What stands between the trainer and the disk."""
    old_first: bool = False
    """Older snapshots are removed before the new one is written."""

    def __call__(self, disk: PowerDisk, done: list[int]) -> None:
        """Take them; the steps whose snapshot is complete go to ``done``."""
        with flash_on(self.wrong(disk), self.keep) as flash:
            for step in self.steps:
                for part in SnapshotId(step, self.generation, self.count).parts():
                    if self.old_first:
                        for old in flash.parts():
                            disk.unlink(ROOT / old.manifest_key)
                    take(flash, part)
                    if part.index == self.count - 1:
                        done.append(step)
                    flash.tidy(part)


def take(flash: Flash, part: Part) -> None:
    start, end = part.span(SIZE)
    data = memoryview(state(part.of.step))[start:end]
    digest = f"of step {part.of.step}"
    flash.write(part, data, lambda sums: Manifest.of(part, LAYOUT, sums, job=JOB, digest=digest))


def tree(disk: PowerDisk) -> tuple[tuple[str, bytes], ...]:
    """All that is on the disk; directories with no bytes."""

    def below(path: Path, depth: int) -> Iterator[tuple[str, bytes]]:
        for name in disk.listdir(path):
            at = path / name
            if depth:
                yield (f"{at}/", b"")
                yield from below(at, depth - 1)
            else:
                descriptor = disk.open(at)
                data = bytearray(disk.size(descriptor))
                disk.pread(descriptor, memoryview(data), 0)
                disk.close(descriptor)
                yield (str(at), bytes(data))

    return tuple(below(Path("/"), len(ROOT.parts) + 2))


def distinct(disks: Iterable[PowerDisk]) -> Iterator[PowerDisk]:
    """One disk of those with the same content."""
    seen = set()
    for disk in disks:
        if (key := hash(tree(disk))) not in seen:
            seen.add(key)
            yield disk


def crashes(start: PowerDisk, protocol: Callable[[PowerDisk], None]) -> Iterator[PowerDisk]:
    """Run the protocol on copies of ``start``: whole, stopped before each event and within each
    write. What a stop after an event leaves is what a stop before the next one does."""
    whole = start.again()
    protocol(whole)
    yield whole
    for number, event in enumerate(whole.events, 1):
        moments: tuple[When, ...] = ("before", "within") if "pwrite" in event else ("before",)
        for when in moments:
            disk = start.again(stop=(number, when))
            with pytest.raises(Crash):
                protocol(disk)
            yield disk


class Recovered:
    """What recovery finds on a disk; the same content is looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, int | None] = {}

    def __call__(self, disk: PowerDisk) -> int | None:
        """The step of the snapshot that one rank alone goes on from, its bytes compared."""
        key = hash(tree(disk))
        if key not in self._known:
            self._known[key] = self._look(disk.again())
        return self._known[key]

    @staticmethod
    def _look(disk: PowerDisk) -> int | None:
        with flash_on(disk) as flash:
            recovery = Recovery(flash=flash, store=None, job=JOB, stage=Buffers())
            while (reading := agree([recovery.holdings(0)])) is not None:
                restored = recovery.read(reading, 0)
                if restored.good:
                    step = reading.snapshot.step
                    assert restored.image.numpy().tobytes() == state(step), "verified, and wrong"
                    return step
                if restored.whole:
                    recovery.reject(reading.snapshot)
        return None


recovered = Recovered()


def disk_after(*steps: int, keep: int = 2, count: int = 1) -> PowerDisk:
    """A disk on which the snapshots of these steps were taken; without any it is as mounted."""
    disk = PowerDisk()
    if steps:
        Taking(steps=steps, keep=keep, count=count)(disk, [])
    return disk


def lost(start: PowerDisk, taking: Taking) -> list[str]:
    """The moments at which a crash takes what must be there."""
    had = recovered(start)
    found = []
    done: list[int] = []

    def run(disk: PowerDisk) -> None:
        done.clear()
        taking(disk, done)

    for crashed in crashes(start, run):
        must = max([*done, *([] if had is None else [had])], default=None)
        last = crashed.events[-1] if crashed.events else "the start"
        left = [("killed", crashed.killed())]
        left += [("without power", survivor) for survivor in crashed.survivors()]
        for kind, disk in left:
            there = recovered(disk)
            if must is not None and (there is None or there < must):
                found.append(f"{kind} at {last}: {there}, not {must}")
    return found


STARTS = {
    "nothing, not even the directory": ((), Taking(steps=(1, 2))),
    "full": ((1, 2), Taking(steps=(3, 4))),
    "full, several parts": ((1, 2), Taking(steps=(3,), count=3)),
    "one is kept": ((1,), Taking(steps=(2, 3), keep=1)),
    "the same again": ((1, 2), Taking(steps=(2,))),
    "the only one again": ((1,), Taking(steps=(1, 2), keep=1)),
}


@pytest.mark.parametrize("case", STARTS)
def test_a_crash_at_any_event_leaves_the_newest_complete_snapshot(case: str) -> None:
    steps, taking = STARTS[case]
    start = disk_after(*steps, keep=taking.keep, count=taking.count)
    assert lost(start, taking) == []


class Wrong:
    """A disk that leaves something out."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: dict[int, Path] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def create(self, path: Path, *, direct: bool = False) -> int:
        descriptor = self._disk.create(path, direct=direct)
        self._paths[descriptor] = path
        return descriptor

    def sync(self, descriptor: int) -> None:
        if self.syncs(self._paths[descriptor]):
            self._disk.sync(descriptor)

    def sync_directory(self, path: Path) -> None:
        if self.syncs(path):
            self._disk.sync_directory(path)

    def syncs(self, path: Path) -> bool:
        raise NotImplementedError


def without(pattern: str) -> Callable[[Disk], Disk]:
    """A disk that does not sync what matches the pattern."""

    class Without(Wrong):
        def syncs(self, path: Path) -> bool:
            return not (path == Path(pattern) or path.match(pattern))

    return Without


NOT_SYNCED = {
    "data": "state.bin",
    "manifest": "manifest.json.tmp",
    "part": "part-*",
    "generation": "generation-*",
    "step": "step-*",
    "flash": "/node/flash",
}


@pytest.mark.parametrize("what", NOT_SYNCED)
def test_what_is_not_synced_is_noticed(what: str) -> None:
    """The trainer of this name among the sick ones, *unfsynced*, is the first of these."""
    found = lost(disk_after(1), Taking(steps=(2,), keep=1, wrong=without(NOT_SYNCED[what])))
    assert found
    assert all(text.startswith("without power") for text in found), found


@pytest.mark.parametrize("what", ["/node", "/"])
def test_a_new_directory_for_snapshots_is_noticed_when_its_own_name_is_not_synced(
    what: str,
) -> None:
    found = lost(disk_after(), Taking(steps=(1,), wrong=without(what)))
    assert found
    assert all("None, not 1" in text for text in found), found


def test_removing_the_old_before_the_new_is_complete_is_noticed() -> None:
    found = lost(disk_after(1), Taking(steps=(2,), old_first=True))
    assert any(text.startswith("killed at mkdir") for text in found), found


@pytest.mark.parametrize("steps", [(), (1, 2)], ids=["nothing", "full"])
def test_the_next_snapshot_is_as_safe_after_any_crash(steps: tuple[int, ...]) -> None:
    """Taken by the next process, of the same step or a later one: it outlives a loss of power,
    though the process before died between its syncs; and what that left is swept."""
    taking = Taking(steps=(3,))
    stopped = [
        left
        for crashed in crashes(disk_after(*steps), lambda disk: taking(disk, []))
        for left in (crashed.killed(), *crashed.survivors(limit=2))
    ]
    for left in distinct(stopped):
        for again in (taking, Taking(steps=(4,), generation=2)):
            disk = left.again()
            again(disk, [])
            for later in (disk, *disk.survivors(limit=2)):
                assert recovered(later) == again.steps[-1]
            with flash_on(disk) as flash:
                kept = {part.of.step for part in flash.parts()}
            assert len(kept) <= 2
            assert {int(name.removeprefix("step-")) for name in disk.listdir(ROOT)} == kept


def test_a_rank_keeps_what_others_still_need() -> None:
    """Two ranks, each with a disk of its own, of which one is ahead when all die."""
    roots = [Path("/node-0"), Path("/node-1")]

    def both(disk: PowerDisk, step: int) -> None:
        for root, part in zip(roots, SnapshotId(step, 1, 2).parts(), strict=True):
            with flash_on(disk, keep=1, root=root) as flash:
                take(flash, part)
                flash.tidy(part)

    start = PowerDisk()
    both(start, 1)
    for crashed in crashes(start, lambda disk: both(disk, 2)):
        for left in (crashed.killed(), *crashed.survivors(limit=8)):
            with flash_on(left, root=roots[0]) as one, flash_on(left, root=roots[1]) as other:
                held = [
                    Recovery(flash=flash, store=None, job=JOB, stage=Buffers()).holdings(0)
                    for flash in (one, other)
                ]
            reading = agree(held)
            assert reading is not None, crashed.events[-1]
