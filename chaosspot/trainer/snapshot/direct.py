"""Writes one large file at the speed of its drive, with a sum of every block.

Direct I/O, because the page cache costs a copy and, when full, stalls everybody. Several threads
each take the next block, so that one sums while another's block is under way. A block that lies in
memory as direct I/O wants it is written from where it is; others are first brought together in a
buffer.

The sum is CRC-32C. One core makes 15 GB/s of it, as much as it can copy, without holding the
interpreter's lock (crc32 4, blake2b 1 GB/s); it finds any three flipped bits of a block, any burst
of 32, and all but one in 2^32 of other damage; and S3 keeps the same sum of every part.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Self

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from chaosspot.trainer.snapshot.disk import Disk
from chaosspot.trainer.snapshot.parts import ALIGN_BYTES

__all__ = [
    "BLOCK_BYTES",
    "BlockPool",
    "Bytes",
    "DirectWriter",
    "Laid",
    "Sums",
    "aligned_buffer",
    "is_aligned",
    "naming",
    "padded",
    "sum_text",
    "write_file",
]

_log = logging.getLogger(__name__)

BLOCK_BYTES = 16 << 20
_CACHED_BYTES = 1 << 20  # copied, and then summed while it is still in the processor's cache

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """What a file is known by. Each sum is the 8 hex digits of a CRC-32C.

    Raises:
        ValueError: the values contradict each other, so that they are damaged themselves.
    """

    file_bytes: int
    block_bytes: int
    blocks: tuple[str, ...]
    """Of the first ``block_bytes`` bytes, the next, and so on; the last block may be shorter."""
    whole: str
    """Of the blocks' sums, four bytes each, highest first: the composite sum that S3 gives an
    object whose parts are the blocks."""

    def __post_init__(self) -> None:
        if self.block_bytes <= 0 or len(self.blocks) != -(-self.file_bytes // self.block_bytes):
            raise ValueError(
                f"{len(self.blocks)} sums of blocks of {self.block_bytes} bytes"
                f" for a file of {self.file_bytes} bytes"
            )
        if (found := _whole(self.blocks)) != self.whole:
            raise ValueError(f"the blocks' sums have sum {found}, not {self.whole}")


def sum_text(data: Bytes) -> str:
    """The sum of one block as :class:`Sums` writes it."""
    return f"{crc32c(data.data):08x}"


def _whole(blocks: Sequence[str]) -> str:
    return f"{crc32c(bytes.fromhex(''.join(blocks))):08x}"


def padded(length: int) -> int:
    """The next length that direct I/O can have."""
    return -(-length // ALIGN_BYTES) * ALIGN_BYTES


def is_aligned(data: Bytes) -> bool:
    """Whether direct I/O can use the memory as it lies."""
    return data.ctypes.data % ALIGN_BYTES == 0 and len(data) % ALIGN_BYTES == 0


def aligned_buffer(length: int) -> Bytes:
    """Memory that direct I/O can use as it lies; it goes with the last reference to it."""
    memory = mmap.mmap(-1, length)
    with suppress(OSError):  # fewer pages to pin for each write
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block, raised for a descriptor, name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


class Laid:
    """Buffers as the one file that they make, each right behind the one before."""

    def __init__(self, buffers: Iterable[memoryview]) -> None:
        self._arrays = [np.frombuffer(buffer, np.uint8) for buffer in buffers if buffer.nbytes]
        self._ends = list(accumulate(map(len, self._arrays)))
        self.length = self._ends[-1] if self._ends else 0

    def pieces(self, start: int, end: int) -> Iterator[Bytes]:
        """What lies from byte ``start`` up to ``end``, piece by piece, not copied."""
        index = bisect_right(self._ends, start)
        while start < end:
            array, array_end = self._arrays[index], self._ends[index]
            array_start = array_end - len(array)
            yield array[start - array_start : end - array_start]
            start, index = array_end, index + 1


class BlockPool:
    """Threads, and an aligned buffer of one block for each, made once.

    When closed, what is under way is given up and the threads are joined, each after its block.
    """

    def __init__(self, threads: int, block_bytes: int = BLOCK_BYTES) -> None:
        if threads < 1 or block_bytes < 1 or block_bytes % ALIGN_BYTES:
            raise ValueError(f"{threads} threads, blocks of {block_bytes} bytes")
        self.block_bytes = block_bytes
        self._buffers = [aligned_buffer(block_bytes) for _ in range(threads)]
        self._threads = ThreadPoolExecutor(threads, "blocks")
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._threads.shutdown()

    def run(self, count: int, work: Callable[[int, Bytes], None]) -> None:
        """Do ``work`` once for every block, from 0, with a buffer that no other thread uses.

        Once one has raised no more are begun. When this returns or raises, all threads rest.

        Raises:
            OSError: ECANCELED, the pool is closed.
        """
        left = deque(range(count))

        def drain(buffer: Bytes) -> None:
            while left and not self._closed:
                try:
                    block = left.popleft()
                except IndexError:  # another thread was first
                    return
                try:
                    work(block, buffer)
                except BaseException:
                    left.clear()
                    raise

        running: list[Future[None]] = []
        try:
            for buffer in self._buffers[:count]:
                running.append(self._threads.submit(drain, buffer))
            wait(running, return_when=FIRST_EXCEPTION)
        except RuntimeError:  # no thread takes anything any more
            if not self._closed:
                raise
        finally:  # also when interrupted: nobody may use the file once it is closed
            given_up = len(left)
            left.clear()
            wait(running)
        for future in running:
            future.result()
        if given_up:
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))


class DirectWriter:
    """Writes files, one at a time, with ``writers`` threads and buffers that it keeps.

    Where the file system has no direct I/O it says so once and writes through the page cache.
    """

    def __init__(self, disk: Disk, *, writers: int = 2, block_bytes: int = BLOCK_BYTES) -> None:
        self._disk = disk
        self._pool = BlockPool(writers, block_bytes)
        self._direct = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.__exit__()

    def write(self, path: Path, chunks: Iterable[memoryview]) -> Sums:
        """Write the chunks one behind the other, and sync the file, but not its name.

        Chunks must not change meanwhile. What had the name before is lost.

        Raises:
            OSError: no space, the disk failed, or the writer is closed; names the file, which is
                gone.
        """
        content = Laid(chunks)
        with naming(path):
            if self._direct:
                try:
                    return self._write(path, content, direct=True)
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                self._direct = False
                _log.warning("no direct I/O, written through the page cache instead: %s", path)
            return self._write(path, content, direct=False)

    def _write(self, path: Path, content: Laid, *, direct: bool) -> Sums:
        descriptor = self._disk.create(path, direct=direct)
        try:
            try:
                return self._fill(descriptor, content)
            finally:
                self._disk.close(descriptor)
        except BaseException:
            with suppress(OSError):
                self._disk.unlink(path)
            raise

    def _fill(self, descriptor: int, content: Laid) -> Sums:
        length, block_bytes = content.length, self._pool.block_bytes
        sums = [""] * -(-length // block_bytes)

        def write_block(block: int, buffer: Bytes) -> None:
            start = block * block_bytes
            end = min(start + block_bytes, length)
            data, sums[block] = _gathered(list(content.pieces(start, end)), buffer)
            _write_all(self._disk, descriptor, data.data, start)

        if length:  # at full length from the start: writers of a growing file wait for each other
            self._disk.reserve(descriptor, padded(length))
        self._pool.run(len(sums), write_block)
        if length != padded(length):
            self._disk.truncate(descriptor, length)
        self._disk.sync(descriptor)
        return Sums(
            file_bytes=length, block_bytes=block_bytes, blocks=tuple(sums), whole=_whole(sums)
        )


def _gathered(pieces: list[Bytes], buffer: Bytes) -> tuple[Bytes, str]:
    """The pieces as direct I/O wants them, with anything behind them, and their own sum."""
    if len(pieces) == 1 and is_aligned(pieces[0]):
        return pieces[0], sum_text(pieces[0])
    at = total = 0
    for piece in pieces:
        for start in range(0, len(piece), _CACHED_BYTES):
            part = piece[start : start + _CACHED_BYTES]
            copy = buffer[at : at + len(part)]
            np.copyto(copy, part)
            total = crc32c(copy.data, total)
            at += len(part)
    return buffer[: padded(at)], f"{total:08x}"


def _write_all(disk: Disk, descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = disk.pwrite(descriptor, data, offset)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data, offset = data[written:], offset + written


def write_file(
    disk: Disk,
    path: Path,
    chunks: Iterable[memoryview],
    *,
    writers: int = 2,
    block_bytes: int = BLOCK_BYTES,
) -> Sums:
    """Write one file as :meth:`DirectWriter.write` does."""
    with DirectWriter(disk, writers=writers, block_bytes=block_bytes) as writer:
        return writer.write(path, chunks)
