"""What outlives nodes: values under keys. A directory here; an object store fits the same four."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

__all__ = ["DirectoryStore", "Store"]


class Store(Protocol):
    """Values under slash-separated keys.

    ``put`` is atomic and durable when it returns: a reader sees the whole value or none, also
    after a crash. Every method may raise OSError, which callers treat as "try later".
    """

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None: ...

    def get(self, key: str) -> bytes:
        """The value; FileNotFoundError when there is none."""

    def list(self) -> list[str]:
        """All keys, sorted."""

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens when there is none."""


class DirectoryStore:
    """A directory. Values are written beside their place, synced, renamed, and the name synced."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
        try:
            with open(beside, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            os.rename(beside, path)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise
        for directory in (path.parent, self._root):  # the name, and the directory's own name
            _sync_directory(directory)

    def get(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def list(self) -> list[str]:
        found = []
        for directory, _, names in os.walk(self._root):  # passes over what vanishes meanwhile
            base = Path(directory).relative_to(self._root)
            found += [str(base / name) for name in names if not name.endswith(".tmp")]
        return sorted(found)

    def delete(self, key: str) -> None:
        path = self._root / key
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or another rank was first
            path.parent.rmdir()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
