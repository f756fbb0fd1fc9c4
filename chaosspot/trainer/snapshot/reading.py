"""Reads one large file at the speed of its drive, and verifies every block."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from chaosspot.trainer.snapshot.direct import (
    BlockPool,
    Bytes,
    Laid,
    Sums,
    is_aligned,
    naming,
    padded,
    sum_text,
)
from chaosspot.trainer.snapshot.disk import Disk
from chaosspot.trainer.snapshot.manifest import ManifestError

__all__ = ["DamageError", "read_into", "verify"]

_log = logging.getLogger(__name__)


class DamageError(ManifestError):
    """A file is not what its sums say.

    Args:
        start, end: the bytes in question, ``end`` excluded.
    """

    def __init__(self, path: Path, start: int, end: int, *, expected: str, found: str) -> None:
        super().__init__(f"{path}: bytes {start} to {end}: expected {expected}, found {found}")
        self.path = path
        self.start = start
        self.end = end


def read_into(
    disk: Disk, path: Path, sums: Sums, targets: Iterable[memoryview], *, readers: int = 4
) -> None:
    """Fill the targets, one behind the other, with the whole file.

    It is read with direct I/O where that can be, and into targets without a copy where they are
    aligned. When this raises, what the targets hold is undefined.

    Raises:
        DamageError: a block's sum, or the file's length, is not what ``sums`` says.
        ValueError: the targets' length is not that of ``sums``.
        OSError: the file is not there or cannot be read; names it.
    """
    content = Laid(targets)
    if content.length != sums.file_bytes:
        raise ValueError(f"targets have {content.length} bytes for a file of {sums.file_bytes}")
    _read_whole(disk, path, sums, content, readers)


def verify(disk: Disk, path: Path, sums: Sums, *, readers: int = 4) -> None:
    """Read the whole file, a block at a time, and keep nothing of it.

    Raises:
        DamageError: as :func:`read_into`.
        OSError: the file is not there or cannot be read; names it.
    """
    _read_whole(disk, path, sums, None, readers)


def _read_whole(disk: Disk, path: Path, sums: Sums, content: Laid | None, readers: int) -> None:
    with naming(path), BlockPool(readers, sums.block_bytes) as pool:
        try:
            _read(disk, path, sums, content, pool, direct=True)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _log.warning("no direct I/O, read through the page cache instead: %s", path)
            _read(disk, path, sums, content, pool, direct=False)


def _read(
    disk: Disk, path: Path, sums: Sums, content: Laid | None, pool: BlockPool, *, direct: bool
) -> None:
    def read_block(block: int, buffer: Bytes) -> None:
        start = block * sums.block_bytes
        end = min(start + sums.block_bytes, sums.file_bytes)
        pieces = list(content.pieces(start, end)) if content else []
        in_place = len(pieces) == 1 and is_aligned(pieces[0])
        into = pieces[0] if in_place else buffer[: padded(end - start)]
        data = into[: _read_all(disk, descriptor, into.data, start, end)]
        expected, found = sums.blocks[block], sum_text(data)
        if len(data) < end - start:
            found = f"{len(data)} bytes with {found}"
        if found != expected:
            raise DamageError(path, start, end, expected=expected, found=found)
        if not in_place:
            _scatter(data, pieces)

    descriptor = disk.open(path, direct=direct)
    try:
        size = disk.size(descriptor)
        if size != sums.file_bytes:
            first, last = sorted((size, sums.file_bytes))
            expected = f"a file of {sums.file_bytes} bytes"
            raise DamageError(path, first, last, expected=expected, found=f"{size} bytes")
        pool.run(len(sums.blocks), read_block)
    finally:
        disk.close(descriptor)


def _read_all(disk: Disk, descriptor: int, into: memoryview, start: int, end: int) -> int:
    """How many of the bytes from ``start`` to ``end`` there are."""
    at = start
    while at < end and (count := disk.pread(descriptor, into[at - start :], at)):
        at += count
    return at - start


def _scatter(data: Bytes, pieces: list[Bytes]) -> None:
    at = 0
    for piece in pieces:
        np.copyto(piece, data[at : at + len(piece)])
        at += len(piece)
