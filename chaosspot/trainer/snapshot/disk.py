"""The file system as snapshots use it: a few operations, each of which can be watched.

Whether a snapshot outlives a crash is decided by what passes through here and in which order. A
test can stop before every operation, and a model of what a loss of power leaves can stand in.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

__all__ = ["Disk", "RealDisk"]


class Disk(Protocol):
    """Files and directories. Threads may share it; every method may raise OSError.

    Nothing outlives a loss of power but what was synced: a file's bytes and length by ``sync``,
    its name by ``sync_directory``.
    """

    def create(self, path: Path, *, direct: bool = False) -> int:
        """Open a new file for writing, or one that is emptied; a descriptor.

        ``direct`` passes by the page cache: EINVAL, here or when writing, where that cannot be.
        Addresses, offsets and lengths must be aligned then.
        """

    def open(self, path: Path, *, direct: bool = False) -> int:
        """Open a file for reading; a descriptor. ``direct`` as in :meth:`create`."""

    def close(self, descriptor: int) -> None: ...

    def size(self, descriptor: int) -> int:
        """Length in bytes."""

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write at ``offset``; how many bytes were written, which may be fewer."""

    def pread(self, descriptor: int, into: memoryview, offset: int) -> int:
        """Read from ``offset``; how many bytes were read, 0 at the end of the file."""

    def reserve(self, descriptor: int, length: int) -> None:
        """Make an empty file ``length`` bytes long, and take the space for it where possible."""

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut the file, or lengthen it with zeros."""

    def sync(self, descriptor: int) -> None:
        """Return when the file's bytes and length are durable."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are durable."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, at once and in place of what had that name."""

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None: ...

    def rmdir(self, path: Path) -> None: ...

    def listdir(self, path: Path) -> list[str]:
        """The names in the directory, sorted."""

    def free_bytes(self, path: Path) -> int:
        """What can still be written to the file system of ``path``."""


class RealDisk:
    """The kernel's file systems."""

    def create(self, path: Path, *, direct: bool = False) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return os.open(path, flags | (os.O_DIRECT if direct else 0), 0o666)

    def open(self, path: Path, *, direct: bool = False) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0))

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def pread(self, descriptor: int, into: memoryview, offset: int) -> int:
        return os.preadv(descriptor, [into], offset)

    def reserve(self, descriptor: int, length: int) -> None:
        try:
            os.posix_fallocate(descriptor, 0, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.ftruncate(descriptor, length)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize
