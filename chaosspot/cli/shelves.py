"""Where snapshots lie, for commands: directories and object stores, several of them as one.

Nothing is made or changed here, and torch is not needed.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chaosspot.trainer.place import ObjectPlace, place
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.manifest import Manifest, ManifestError
from chaosspot.trainer.snapshot.parts import Part, SnapshotId, parts_in
from chaosspot.trainer.snapshot.reading import read_into, verify
from chaosspot.trainer.snapshot.store import DirectoryStore, Store

__all__ = ["Copy", "Found", "PlaceError", "ReadDisk", "Shelf", "find", "open_shelf"]

_READERS = 2  # threads for each file, of which several are read at once


class ReadDisk(RealDisk):
    """Tells how many bytes were read, and can be told to stop: whoever reads gets ECANCELED."""

    def __init__(self, read: Callable[[int], object]) -> None:
        self.read = read
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def pread(self, descriptor: int, into: memoryview, offset: int) -> int:
        if self._stopped.is_set():
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        count = super().pread(descriptor, into, offset)
        self.read(count)
        return count


class PlaceError(ValueError):
    """A place cannot be used."""


class Shelf(Protocol):
    """One place."""

    name: str
    keys: list[str]

    def manifest(self, part: Part) -> Manifest:
        """Raises ManifestError, which names the file, or OSError."""

    def check(self, part: Part, manifest: Manifest, disk: ReadDisk) -> None:
        """Read all of the part; raises as :meth:`manifest`."""

    def fill(self, part: Part, manifest: Manifest, into: memoryview, disk: ReadDisk) -> None:
        """Read the part, verified; raises as :meth:`manifest`."""


class DirectoryShelf:
    """A node's disk, or a store that is a directory."""

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self._root = root
        self.keys = DirectoryStore(root).keys()

    def manifest(self, part: Part) -> Manifest:
        path = self._root / part.manifest_key
        return _decoded(path.read_bytes(), part, str(path))

    def check(self, part: Part, manifest: Manifest, disk: ReadDisk) -> None:
        verify(disk, self._root / part.data_key, manifest.sums, readers=_READERS)

    def fill(self, part: Part, manifest: Manifest, into: memoryview, disk: ReadDisk) -> None:
        path = self._root / part.data_key
        read_into(disk, path, manifest.sums, [into], readers=_READERS)


class StoreShelf:
    """An object store."""

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self._store = store
        self.keys = store.keys()

    def manifest(self, part: Part) -> Manifest:
        key = part.manifest_key
        return _decoded(self._store.get(key), part, f"{self.name}{key}")

    def check(self, part: Part, manifest: Manifest, disk: ReadDisk) -> None:
        self._verified(part, manifest)
        disk.read(manifest.sums.file_bytes)

    def fill(self, part: Part, manifest: Manifest, into: memoryview, disk: ReadDisk) -> None:
        into[:] = self._verified(part, manifest)

    def _verified(self, part: Part, manifest: Manifest) -> bytes:
        data = self._store.get(part.data_key)
        try:
            manifest.check(data)
        except ManifestError as error:
            raise ManifestError(f"{self.name}{part.data_key}: {error}") from error
        return data


def _decoded(data: bytes, part: Part, where: str) -> Manifest:
    try:
        return Manifest.decode(data, part=part)
    except ManifestError as error:
        raise ManifestError(f"{where}: {error}") from error


def open_shelf(text: str) -> Shelf:
    """The place that ``text`` names: a directory, or ``s3://BUCKET/PREFIX``.

    Raises:
        PlaceError: it is not there or cannot be listed.
    """
    try:
        where = place(text)
    except ValueError as error:
        raise PlaceError(str(error)) from error
    if isinstance(where, ObjectPlace):
        from chaosspot.trainer.snapshot.object_store import ObjectStore  # boto3 takes a while

        try:
            return StoreShelf(str(where), ObjectStore(where))
        except OSError as error:
            raise PlaceError(f"{text!r} cannot be listed: {error}") from error
        except ValueError as error:  # as clients call an endpoint that is none
            raise PlaceError(f"{text!r}: {error}") from error
    if not where.exists():
        raise PlaceError(f"there is no {text!r}")
    if not where.is_dir():
        raise PlaceError(f"{text!r} is no directory")
    if not os.access(where, os.R_OK | os.X_OK):
        raise PlaceError(f"{text!r} cannot be read")
    return DirectoryShelf(where)


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One part as it lies in one place. Its manifest is None if ``damage`` says why."""

    part: Part
    shelf: Shelf
    manifest: Manifest | None
    damage: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What there is of one snapshot."""

    id: SnapshotId
    copies: list[Copy] = field(default_factory=list)
    """Those with a manifest file, in the order of parts and places."""
    begun: frozenset[int] = frozenset()
    """Indices of parts that have data somewhere, and a manifest nowhere."""

    @property
    def good(self) -> dict[int, list[Copy]]:
        """The copies with a manifest that can be read, by index."""
        found: dict[int, list[Copy]] = {}
        for copy in self.copies:
            if copy.manifest is not None:
                found.setdefault(copy.part.index, []).append(copy)
        return found

    @property
    def manifests(self) -> list[Manifest]:
        """One of each part that has one."""
        return [copies[0].manifest for copies in self.good.values() if copies[0].manifest]

    @property
    def total_bytes(self) -> int | None:
        """Of the whole state; None if no manifest can be read."""
        return next((manifest.total_bytes for manifest in self.manifests), None)

    @property
    def problems(self) -> list[str]:
        """Why it cannot be restored, as far as its manifests tell; nothing if it can."""
        found = [copy.damage for copy in self.copies if copy.part.index not in self.good]
        told = {copy.part.index for copy in self.copies}
        absent = [index for index in range(self.id.count) if index not in told]
        found += [f"part {index}: not finished" for index in absent if index in self.begun]
        if missing := [index for index in absent if index not in self.begun]:
            found.append(f"missing: {_parts(missing)}")
        every = [copy.manifest for copies in self.good.values() for copy in copies if copy.manifest]
        for name in ("job", "digest", "total_bytes", "tensors"):
            if any(getattr(manifest, name) != getattr(every[0], name) for manifest in every):
                found.append(f"the parts are not of one state: their {name} differs")
                break
        for manifest in self.manifests:
            start, end = manifest.part.span(manifest.total_bytes)
            if (manifest.start, manifest.sums.file_bytes) != (start, end - start):
                found.append(f"part {manifest.index}: not bytes {start} to {end} of the state")
        return found

    @property
    def complete(self) -> bool:
        return not self.problems


def _parts(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
    return f"part {shown}" if len(indices) == 1 else f"parts {shown}"


def find(shelves: list[Shelf]) -> tuple[list[Found], dict[str, list[str]]]:
    """The snapshots that lie in these places together, oldest first; and by place the keys that
    belong to none."""
    copies: dict[SnapshotId, list[Copy]] = {}
    data: dict[SnapshotId, set[int]] = {}
    unknown: dict[str, list[str]] = {}
    for shelf in shelves:
        for part in parts_in(shelf.keys):
            copies.setdefault(part.of, []).append(_copy(shelf, part))
        for key in shelf.keys:
            belongs = Part.of_key(key)
            if belongs is None or key not in (belongs.data_key, belongs.manifest_key):
                unknown.setdefault(shelf.name, []).append(key)
            else:
                data.setdefault(belongs.of, set()).add(belongs.index)
    found = []
    for of in sorted(copies.keys() | data.keys()):
        here = sorted(copies.get(of, ()), key=lambda copy: copy.part.index)
        begun = data.get(of, set()) - {copy.part.index for copy in here}
        found.append(Found(id=of, copies=here, begun=frozenset(begun)))
    return found, unknown


def _copy(shelf: Shelf, part: Part) -> Copy:
    try:
        return Copy(part=part, shelf=shelf, manifest=shelf.manifest(part))
    except ManifestError as error:
        return Copy(part=part, shelf=shelf, manifest=None, damage=str(error))
    except OSError as error:
        where = f"{shelf.name}: {part.manifest_key}"
        reason = error.strerror or str(error)
        return Copy(part=part, shelf=shelf, manifest=None, damage=f"{where}: {reason}")
