"""The file layer: what is written is read again, or named as damaged, and outlives a crash."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import mmap
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from power import Crash, PowerDisk, crashes

from chaosspot.trainer.snapshot.direct import BlockPool, DirectWriter, Sums, write_file
from chaosspot.trainer.snapshot.disk import Disk, RealDisk
from chaosspot.trainer.snapshot.manifest import ManifestError
from chaosspot.trainer.snapshot.reading import DamageError, read_into

BLOCK = 4096
ROOT = Path("/flash")


@cache
def content(length: int, seed: int = 1) -> bytes:
    """Bytes of which no block equals another."""
    words = (seed * 1_000_003 + at * 2_654_435_761 for at in range(-(-length // 8)))
    return b"".join((word % 2**64).to_bytes(8, "little") for word in words)[:length]


def read(disk: Disk, path: Path, sums: Sums, *, readers: int = 1) -> bytes:
    target = bytearray(sums.file_bytes)
    read_into(disk, path, sums, [memoryview(target)], readers=readers)
    return bytes(target)


def aligned(data: bytes) -> memoryview:
    """The data where direct I/O wants it."""
    memory = memoryview(mmap.mmap(-1, len(data)))
    memory[:] = data
    return memory


# What is written is what is read


@pytest.mark.parametrize("writers", [1, 4])
@pytest.mark.parametrize(
    "lengths", [[], [0], [1], [4096], [4097], [100, 0, 40_000], [4096, 81_920, 5000], [8192, 8192]]
)
def test_a_file_is_its_chunks_one_behind_the_other(
    tmp_path: Path, lengths: list[int], writers: int
) -> None:
    chunks = [aligned(content(n, n)) if n else memoryview(b"") for n in lengths]
    whole = b"".join(chunks)
    with DirectWriter(RealDisk(), writers=writers, block_bytes=BLOCK) as writer:
        for name in ("first", "second"):
            sums = writer.write(tmp_path / name, chunks)
            assert (tmp_path / name).read_bytes() == whole
    blocks = [whole[at : at + BLOCK] for at in range(0, len(whole), BLOCK)]
    assert sums.blocks == tuple(f"{crc32c(block):08x}" for block in blocks)
    assert sums.whole == f"{crc32c(b''.join(bytes.fromhex(text) for text in sums.blocks)):08x}"
    assert (sums.file_bytes, sums.block_bytes) == (len(whole), BLOCK)
    targets = [memoryview(bytearray(n)) for n in lengths]
    read_into(RealDisk(), tmp_path / "second", sums, targets, readers=writers)
    assert targets == chunks


@given(
    lengths=st.lists(st.integers(0, 20_000), max_size=4),
    cuts=st.lists(st.integers(0, 80_000), max_size=3),
    shift=st.integers(0, 64),
    io_bytes=st.sampled_from([4096, 8192, 1 << 30]),
)
def test_neither_cuts_nor_alignment_nor_short_writes_show(
    lengths: list[int], cuts: list[int], shift: int, io_bytes: int
) -> None:
    memory = aligned(content(shift + sum(lengths)))[shift:] if shift + sum(lengths) else None
    chunks, at = [], 0
    for length in lengths:
        chunks.append(memory[at : at + length] if memory else memoryview(b""))
        at += length
    disk, path = PowerDisk(io_bytes=io_bytes), Path("/data")  # refuses what is not aligned
    sums = write_file(disk, path, chunks, writers=2, block_bytes=2 * BLOCK)
    ends = sorted({0, at, *(cut % (at + 1) for cut in cuts)})
    target = bytearray(at)
    parts = [memoryview(target)[a:b] for a, b in pairwise(ends)]
    read_into(disk, path, sums, parts, readers=2)
    assert target == b"".join(chunks)
    assert not disk.open_files
    assert [event for event in disk.events if "create" in event] == ["create /data"]  # no fallback


@pytest.mark.parametrize("refuses", ["open", "io"])
def test_without_direct_io_the_page_cache_is_used_and_that_is_said_once(
    refuses: Any, caplog: pytest.LogCaptureFixture
) -> None:
    disk, data = PowerDisk(no_direct=refuses), content(3 * BLOCK + 5)
    with DirectWriter(disk, writers=2, block_bytes=BLOCK) as writer:
        for name in ("one", "two"):
            sums = writer.write(Path("/") / name, [memoryview(data)])
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "/one" in caplog.text
    for name in ("one", "two"):
        assert read(disk, Path("/") / name, sums) == data
    assert not disk.open_files


def test_aligned_data_is_not_copied(tmp_path: Path) -> None:
    """What is written and read is the caller's memory itself."""
    seen: list[int] = []

    class Watched(RealDisk):
        def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
            seen.append(_address(data))
            return super().pwrite(descriptor, data, offset)

        def pread(self, descriptor: int, into: memoryview, offset: int) -> int:
            seen.append(_address(into))
            return super().pread(descriptor, into, offset)

    memory = aligned(content(4 * BLOCK))
    want = [_address(memory) + at for at in range(0, 4 * BLOCK, BLOCK)]
    sums = write_file(Watched(), tmp_path / "data", [memory], block_bytes=BLOCK)
    assert sorted(seen) == want
    seen.clear()
    read_into(Watched(), tmp_path / "data", sums, [memory])
    assert sorted(seen) == want


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)


def test_the_writers_share_the_work_and_rest_when_it_is_done(tmp_path: Path) -> None:
    """Each block waits for a second writer: one alone would never end."""
    together = threading.Barrier(2, timeout=10)

    class Together(RealDisk):
        def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
            together.wait()
            return super().pwrite(descriptor, data, offset)

    before = threading.active_count()
    with DirectWriter(Together(), writers=2, block_bytes=BLOCK) as writer:
        writer.write(tmp_path / "data", [memoryview(content(6 * BLOCK))])
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("threads", "block_bytes"), [(0, 4096), (1, 0), (1, 4095), (1, -4096)]
)  # fmt: skip
def test_what_direct_io_cannot_do_is_refused(threads: int, block_bytes: int) -> None:
    with pytest.raises(ValueError, match=str(block_bytes)):
        BlockPool(threads, block_bytes)


# What goes wrong


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("writers", [1, 3])
def test_a_disk_that_fails_at_any_event_leaves_no_file_and_no_thread(
    code: int, writers: int
) -> None:
    chunks, path = [memoryview(content(6 * BLOCK + 100))], Path("/data")
    whole = PowerDisk()
    write_file(whole, path, chunks, writers=writers, block_bytes=BLOCK)
    assert len(whole.events) == 11  # create, reserve, seven blocks, truncate, sync
    before = threading.active_count()
    for number in range(1, len(whole.events) + 1):
        disk = PowerDisk(errors={number: code})
        with pytest.raises(OSError, match="/data") as caught:
            write_file(disk, path, chunks, writers=writers, block_bytes=BLOCK)
        assert caught.value.errno == code
        assert disk.listdir(Path("/")) == [], disk.events
        assert not disk.open_files
        assert threading.active_count() == before


@pytest.mark.parametrize("writers", [1, 2])
def test_the_first_error_ends_the_writing_and_the_writer_goes_on_with_the_next_file(
    writers: int,
) -> None:
    disk = PowerDisk(errors={4: errno.ENOSPC})
    data = content(50 * BLOCK)
    with DirectWriter(disk, writers=writers, block_bytes=BLOCK) as writer:
        with pytest.raises(OSError, match=r"No space left.*/data"):
            writer.write(Path("/data"), [memoryview(data)])
        written = sum(event.startswith("pwrite") for event in disk.events)
        assert written < 4 or writers > 1, "others may be quicker than the error"
        sums = writer.write(Path("/data"), [memoryview(data)])
    assert read(disk, Path("/data"), sums) == data


def test_nobody_writes_any_more_when_the_error_is_raised() -> None:
    """The first block fails while the second is being written."""
    second, closed, late = threading.Event(), threading.Event(), []

    class Slow(PowerDisk):
        def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
            if offset == 0:
                assert second.wait(10)
                raise OSError(errno.EIO, "Input/output error")
            second.set()
            if closed.wait(0.2):  # what must not come is waited for
                late.append(offset)
            return len(data)

        def close(self, descriptor: int) -> None:
            closed.set()
            super().close(descriptor)

    with pytest.raises(OSError, match="/data"):
        write_file(Slow(), Path("/data"), [memoryview(content(2 * BLOCK))], block_bytes=BLOCK)
    assert closed.is_set()
    assert not late


def test_a_writer_that_is_closed_gives_the_file_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that must end does not wait for the rest of a large file."""
    reached, closing = threading.Event(), threading.Event()

    class Held(PowerDisk):
        def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
            reached.set()
            assert closing.wait(10)
            return super().pwrite(descriptor, data, offset)

    def shutdown(pool: ThreadPoolExecutor) -> None:
        closing.set()
        real(pool)

    real = ThreadPoolExecutor.shutdown
    disk, chunks = Held(), [memoryview(content(50 * BLOCK))]
    with ThreadPoolExecutor(1) as other:
        writer = DirectWriter(disk, writers=2, block_bytes=BLOCK)
        writing = other.submit(writer.write, Path("/data"), chunks)
        assert reached.wait(10)
        monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
        writer.__exit__()
        monkeypatch.undo()
        with pytest.raises(OSError, match="/data") as caught:
            writing.result(10)
    assert caught.value.errno == errno.ECANCELED
    assert sum(event.startswith("pwrite") for event in disk.events) <= 2
    assert disk.listdir(Path("/")) == []
    with pytest.raises(OSError, match="/data"):
        writer.write(Path("/data"), chunks)


def test_a_write_that_writes_nothing_is_an_error() -> None:
    disk = PowerDisk(io_bytes=0)
    with pytest.raises(OSError, match="/data") as caught:
        write_file(disk, Path("/data"), [memoryview(b"x")])
    assert caught.value.errno == errno.EIO
    assert disk.listdir(Path("/")) == []


def test_an_error_of_reading_names_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(RealDisk):
        def pread(self, descriptor: int, into: memoryview, offset: int) -> int:
            raise OSError(errno.EIO, "Input/output error")

    sums = write_file(RealDisk(), tmp_path / "data", [memoryview(b"x")])
    with pytest.raises(OSError, match=r"Input/output error.*data"):
        read(Bad(), tmp_path / "data", sums)
    assert not caplog.records  # tried once: it is not direct I/O that fails
    with pytest.raises(FileNotFoundError, match="absent"):
        read(RealDisk(), tmp_path / "absent", sums)
    with pytest.raises(ValueError, match="targets have 2 bytes for a file of 1"):
        read_into(RealDisk(), tmp_path / "data", sums, [memoryview(bytearray(2))])


LENGTH = 5 * BLOCK + 1234


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sums]:
    path = tmp_path_factory.mktemp("written") / "data"
    chunks = [memoryview(content(LENGTH))]
    return path, write_file(RealDisk(), path, chunks, block_bytes=BLOCK)


@given(at=st.integers(0, LENGTH - 1), count=st.integers(1, 64), mask=st.integers(1, 255))
def test_a_flipped_region_is_found_and_named(
    written: tuple[Path, Sums], at: int, count: int, mask: int
) -> None:
    path, sums = written
    end = min(at + count, LENGTH)
    damaged = bytearray(content(LENGTH))
    damaged[at:end] = bytes(byte ^ mask for byte in damaged[at:end])
    path.write_bytes(damaged)
    with pytest.raises(DamageError) as caught:
        read(RealDisk(), path, sums, readers=2)
    error = caught.value
    first, last = at // BLOCK, (end - 1) // BLOCK
    assert error.start // BLOCK in (first, last)
    assert error.end == min(error.start + BLOCK, LENGTH)
    block = error.start // BLOCK
    found = crc32c(damaged[error.start : error.end])
    assert str(error) == (
        f"{path}: bytes {error.start} to {error.end}:"
        f" expected {sums.blocks[block]}, found {found:08x}"
    )


@given(length=st.integers(0, LENGTH + 2 * BLOCK).filter(lambda length: length != LENGTH))
def test_a_file_that_is_shorter_or_longer_is_found_and_named(
    written: tuple[Path, Sums], length: int
) -> None:
    path, sums = written
    path.write_bytes(content(LENGTH)[:length] + b"\0" * (length - LENGTH))
    with pytest.raises(DamageError, match=f"{LENGTH} bytes, found {length} bytes") as caught:
        read(RealDisk(), path, sums)
    assert (caught.value.start, caught.value.end) == tuple(sorted((length, LENGTH)))


def test_blocks_that_changed_places_or_were_never_written_are_damage(
    written: tuple[Path, Sums],
) -> None:
    path, sums = written
    data = content(LENGTH)
    swapped = data[BLOCK : 2 * BLOCK] + data[:BLOCK] + data[2 * BLOCK :]
    hole = data[: 3 * BLOCK] + bytes(BLOCK) + data[4 * BLOCK :]
    for damaged in (swapped, hole):
        path.write_bytes(damaged)
        with pytest.raises(DamageError):
            read(RealDisk(), path, sums)


def test_a_file_cut_while_it_is_read_is_damage() -> None:
    """The length was right when it was asked."""

    class Cut(PowerDisk):
        def size(self, descriptor: int) -> int:
            return 2 * BLOCK

    disk = Cut()
    sums = write_file(disk, Path("/data"), [memoryview(content(2 * BLOCK))], block_bytes=BLOCK)
    write_file(disk, Path("/data"), [memoryview(content(BLOCK))], block_bytes=BLOCK)
    with pytest.raises(DamageError, match=f"bytes {BLOCK} to {2 * BLOCK}.* found 0 bytes"):
        read(disk, Path("/data"), sums)


@pytest.mark.parametrize(
    "changes",
    [{"file_bytes": BLOCK}, {"block_bytes": 0}, {"block_bytes": 2 * BLOCK}, {"whole": "00000000"},
     {"blocks": ()}, {"blocks": ("00000000", "00000000")}, {"blocks": ("zz", "zz")}],
)  # fmt: skip
def test_sums_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    sums = write_file(PowerDisk(), Path("/data"), [memoryview(content(5000))], block_bytes=BLOCK)
    with pytest.raises(ValueError, match=r"."):
        replace(sums, **changes)


# Crashes

Take = Callable[[PowerDisk, int], None]


def take(disk: Disk, step: int, *, root: Path = ROOT, mutant: str = "", writers: int = 1) -> None:
    """Write a snapshot, then delete all older ones."""
    directory = root / f"step-{step}"
    old = [root / name for name in disk.listdir(root) if name != directory.name]
    with suppress(FileExistsError):
        disk.mkdir(directory)
    if mutant == "old first":
        while old:
            _delete(disk, old.pop())
    data = _WithoutSync(disk) if mutant == "data not synced" else disk
    chunks = [memoryview(b"header"), memoryview(_state(step))]
    sums = write_file(data, directory / "state", chunks, writers=writers, block_bytes=BLOCK)
    _put(disk, directory / "manifest.tmp", json.dumps(asdict(sums)).encode())
    disk.rename(directory / "manifest.tmp", directory / "manifest.json")
    if mutant != "directory not synced":
        disk.sync_directory(directory)
    if mutant != "root not synced":
        disk.sync_directory(root)
    _acknowledged.append(step)
    for before in old:
        _delete(disk, before)


_acknowledged: list[int] = []


def _state(step: int) -> bytes:
    return content(3 * BLOCK, step)


def _put(disk: Disk, path: Path, text: bytes) -> None:
    descriptor = disk.create(path)
    disk.pwrite(descriptor, memoryview(text), 0)
    disk.sync(descriptor)
    disk.close(descriptor)


def _delete(disk: Disk, directory: Path) -> None:
    names = disk.listdir(directory)
    for name in sorted(names, key=lambda name: name != "manifest.json"):
        disk.unlink(directory / name)
    disk.rmdir(directory)


class _WithoutSync:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync(self, descriptor: int) -> None: ...


def complete(disk: PowerDisk) -> list[int]:
    """Steps whose snapshot can be read whole, the newest last."""
    found = []
    for name in disk.listdir(ROOT):
        step = int(name.removeprefix("step-"))
        try:
            descriptor = disk.open(ROOT / name / "manifest.json")
            text = memoryview(bytearray(disk.size(descriptor)))
            disk.pread(descriptor, text, 0)
            told = json.loads(bytes(text))
            sums = Sums(**{**told, "blocks": tuple(told["blocks"])})
            data = read(disk, ROOT / name / "state", sums)
        except (OSError, ManifestError, ValueError, TypeError):
            continue
        assert data == b"header" + _state(step), "verified, and yet not what was written"
        found.append(step)
    return sorted(found)


def begun(*steps: int) -> PowerDisk:
    """A disk on which the snapshots of these steps were taken, one after the other."""
    disk = PowerDisk()
    disk.mkdir(ROOT)
    disk.sync_directory(Path("/"))
    for step in steps:
        take(disk, step)
    return disk


def lost(start: PowerDisk, protocol: Take, step: int) -> list[str]:
    """The moments of taking ``step`` at which a crash takes what must be there."""
    had = complete(start)
    found = []

    def run(disk: PowerDisk) -> None:
        _acknowledged.clear()
        protocol(disk, step)

    for crashed in crashes(start, run):
        must = [step] if step in _acknowledged else had[-1:]
        powerless = [("without power", left) for left in crashed.survivors()]
        for kind, left in [("killed", crashed.killed()), *powerless]:
            there = complete(left)
            if must and (not there or there[-1] < must[0]):
                found.append(f"{kind} at {crashed.events[-1]}: {there}")
    return found


@pytest.mark.parametrize("writers", [1, 2])
def test_a_crash_at_any_event_leaves_the_new_snapshot_or_the_old_one(writers: int) -> None:
    def protocol(disk: PowerDisk, step: int) -> None:
        take(disk, step, writers=writers)

    assert lost(begun(), protocol, 1) == []
    assert lost(begun(1), protocol, 2) == []


def test_taking_snapshots_goes_on_after_any_crash() -> None:
    """What a crash left behind neither stops the next snapshot nor is taken for one."""
    for crashed in crashes(begun(1), lambda disk: take(disk, 2)):
        for left in (crashed.killed(), *crashed.survivors(limit=1)):
            for step in (2, 3):  # the same one again, or the next one
                again = left.again()
                take(again, step)
                assert complete(again) == [step], crashed.events[-1]


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        ("data not synced", "without power"),
        ("directory not synced", "without power"),
        ("root not synced", "without power"),
        ("old first", "killed"),
    ],
)
def test_the_model_finds_what_is_wrong(mutant: str, kind: str) -> None:
    found = lost(begun(1), lambda disk, step: take(disk, step, mutant=mutant), 2)
    assert found
    assert any(text.startswith(kind) for text in found), found


def test_the_model_finds_a_length_that_was_not_synced() -> None:
    """A file is cut to its length before it is synced, not after."""

    class Late(_WithoutSync):
        def sync(self, descriptor: int) -> None:
            self._disk.sync(descriptor)
            self._disk.truncate(descriptor, self.length)

        def truncate(self, descriptor: int, length: int) -> None:
            self.length = length

    disk = begun()
    write_file(Late(disk), ROOT / "state", [memoryview(b"x")])
    disk.sync_directory(ROOT)
    lengths = set()
    for left in disk.survivors():
        descriptor = left.open(ROOT / "state")
        lengths.add(left.size(descriptor))
    assert lengths == {1, 4096}


def test_nothing_reaches_the_disk_after_a_crash() -> None:
    """Not from another thread, and not from what tidies up behind an error."""
    path, chunks = Path("/data"), [memoryview(content(40 * BLOCK))]
    disk = PowerDisk(stop=(5, "after"))
    with pytest.raises(Crash):
        write_file(disk, path, chunks, writers=4, block_bytes=BLOCK)
    assert disk.events[0] == "create /data"
    assert len(disk.events) == 5
    assert disk.listdir(Path("/")) == ["data"]


def test_what_is_left_can_be_put_into_a_real_directory(tmp_path: Path) -> None:
    begun(7).pour(tmp_path)
    told = json.loads((tmp_path / "flash/step-7/manifest.json").read_text())
    sums = Sums(**{**told, "blocks": tuple(told["blocks"])})
    assert read(RealDisk(), tmp_path / "flash/step-7/state", sums) == b"header" + _state(7)
    names = RealDisk().listdir(tmp_path / "flash/step-7")
    assert names == ["manifest.json", "state"]


def test_the_real_disk_ends_with_the_files_of_the_model(tmp_path: Path) -> None:
    """Two snapshots, the older one deleted."""
    real, model = tmp_path / "real", tmp_path / "model"
    model.mkdir()
    disk = RealDisk()
    disk.mkdir(real)
    for step in (1, 2):
        take(disk, step, root=real)
    begun(1, 2).pour(model)
    assert _files(real) == _files(model / ROOT.name)
    assert disk.free_bytes(real) > 0


def _files(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


def test_the_real_disk_passes_by_the_page_cache_where_that_is_possible(tmp_path: Path) -> None:
    disk = RealDisk()
    for way in (disk.create, disk.open):
        try:
            descriptor = way(tmp_path / "data", direct=True)
        except OSError as error:
            pytest.skip(f"no direct I/O: {error}")
        try:
            assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT
        finally:
            disk.close(descriptor)


def test_space_that_cannot_be_reserved_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    data = content(3 * BLOCK + 1)
    sums = write_file(RealDisk(), tmp_path / "data", [memoryview(data)], block_bytes=BLOCK)
    assert read(RealDisk(), tmp_path / "data", sums) == data
