"""A node's local disk: a directory that dies with the node, or a file system of limited size."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from chaosspot.undo import Directory, Lease, Mount, Undo, mounts
from chaosspot.undo.kinds import OWN_MOUNTS

__all__ = ["Flash"]

_BALLAST = ".ballast"
_CHUNK = bytes(1 << 20)


class Flash:
    """The disk of the incarnations of one node. Methods block: call them in a thread."""

    def __init__(self, *, path: Path, run: Path, lease: Lease) -> None:
        self.path = path
        self._lease = lease
        self._directory = Directory(path=str(path.parent), within=str(run))
        self._mount = Mount(path=str(path), source=OWN_MOUNTS + lease.id)
        self._promised: list[tuple[int, Undo]] = []  # empty while there is no disk
        self._limited = False
        self._life = 0  # the number of the incarnation that has it
        self._lock = threading.Lock()

    def make(self, *, life: int, size_bytes: int | None) -> None:
        """A fresh disk, unless one was kept; without ``size_bytes`` a plain directory.

        Raises:
            OSError: it cannot be made; what was begun is gone.
        """
        with self._lock:
            self._life = life
            if self._promised and self.path.is_dir():
                return
            self._remove()
            self._promise(self._directory)
            self._directory.heal()
            self.path.mkdir(parents=True)
            self._limited = size_bytes is not None
            if size_bytes is None:
                return
            self._promise(self._mount)
            try:
                mounts.mount_tmpfs(self.path, source=self._mount.source, size_bytes=size_bytes)
            except OSError as error:
                self._remove()
                raise OSError(
                    error.errno,
                    f"{self.path.parent.name}: flash_bytes = {size_bytes} needs a file system of "
                    f"its own, which cannot be mounted ({error.strerror}): run as root, or leave "
                    "flash_bytes out",
                ) from error

    def remove(self, *, life: int | None = None) -> None:
        """Nothing of it is left when this returns, unless a later life than that has it."""
        with self._lock:
            if life in (None, self._life):
                self._remove()

    def fill(self) -> bool:
        """Leave no space; False if there is no disk any more.

        Raises:
            OSError: its size is not limited, or it cannot be filled.
        """
        with self._lock:
            if not self._promised:
                return False
            if not self._limited:
                raise OSError(f"the flash at {self.path} is not limited: set flash_bytes")
            file = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                while True:
                    os.write(file, _CHUNK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            finally:
                os.close(file)
            return True

    def free(self) -> None:
        """Give back what :meth:`fill` took, if the disk is still there."""
        with self._lock:
            if self._promised:
                (self.path / _BALLAST).unlink(missing_ok=True)

    def _promise(self, undo: Undo) -> None:
        self._promised.append((self._lease.promise(undo), undo))

    def _remove(self) -> None:
        while self._promised:
            token, undo = self._promised[-1]
            undo.heal()
            self._lease.kept(token)
            self._promised.pop()
