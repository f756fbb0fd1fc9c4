"""What outlives nodes: values under keys. A directory here, an object store beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

__all__ = ["DirectoryStore", "Store"]

_UNFINISHED = ".tmp"


class Store(Protocol):
    """Values under slash-separated keys.

    ``put`` is atomic and durable when it returns: a reader sees the whole value or none, also
    after a crash. Every method may raise OSError, which callers treat as "try later".
    """

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None: ...

    def verify(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Compare what is there with what was put; OSError when they differ."""

    def get(self, key: str) -> bytes:
        """The value; FileNotFoundError when there is none."""

    def keys(self) -> list[str]:
        """The keys of all values, sorted."""

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens when there is none."""

    def unfinished(self) -> list[str]:
        """Keys of values that were begun and not finished: they take space, unseen."""

    def discard(self, key: str) -> None:
        """Remove what was begun of that key's value and not finished."""


class DirectoryStore:
    """A directory. Values are written beside their place, synced, renamed, and the name synced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._named = False

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.urandom(4).hex()}{_UNFINISHED}")
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
        for directory in path.parents:  # the name, and the directories' own names
            _sync_directory(directory)
            if directory == self._root:
                break
        if not self._named:
            self._name_root()

    def verify(self, key: str, value: bytes | bytearray | memoryview) -> None:
        if self.get(key) != value:
            raise OSError(f"{key}: what was read again is not what was written")

    def get(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def keys(self) -> list[str]:
        return sorted(path for path in self._files() if not path.endswith(_UNFINISHED))

    def delete(self, key: str) -> None:
        path = self._root / key
        path.unlink(missing_ok=True)
        self._prune(path.parent)

    def unfinished(self) -> list[str]:
        found = [path for path in self._files() if path.endswith(_UNFINISHED)]
        return sorted({path.removesuffix(_UNFINISHED).rpartition(".")[0] for path in found})

    def discard(self, key: str) -> None:
        path = self._root / key
        for beside in path.parent.glob(f"{path.name}.*{_UNFINISHED}"):
            beside.unlink(missing_ok=True)
        self._prune(path.parent)

    def _name_root(self) -> None:
        """Make the directory's own name durable, and the names above it: an earlier process may
        have made them and died before it could."""
        for directory in self._root.absolute().parents:
            with suppress(PermissionError):  # whoever made it has to
                _sync_directory(directory)
        self._named = True

    def _prune(self, directory: Path) -> None:
        """Remove directories that are empty now."""
        with suppress(OSError):  # not empty, or another rank was first
            while directory != self._root:
                directory.rmdir()
                directory = directory.parent

    def _files(self) -> Iterator[str]:
        for directory, _, names in os.walk(self._root):  # passes over what vanishes meanwhile
            base = Path(directory).relative_to(self._root)
            yield from (str(base / name) for name in names)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
