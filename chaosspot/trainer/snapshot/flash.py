"""Snapshots on the node's own disk: this rank's part of each.

The order of the writes is what a crash at any moment relies on: data, synced; manifest beside its
place, synced; renamed; directories synced. Only then is an older snapshot deleted.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from chaosspot import probe
from chaosspot.trainer.plan import surplus
from chaosspot.trainer.snapshot.direct import BLOCK_BYTES, DirectWriter, Sums
from chaosspot.trainer.snapshot.disk import Disk, RealDisk
from chaosspot.trainer.snapshot.manifest import Manifest, ManifestError, OtherJobError
from chaosspot.trainer.snapshot.parts import Part, parts_in
from chaosspot.trainer.snapshot.reading import read_into, verify

__all__ = ["Flash"]

_DEPTH = 4  # step, generation, part, file
_BESIDE = ".tmp"
_OURS = "step-"


class Flash:
    """The parts under ``root``, of at most ``keep`` steps (two where other ranks have parts too);
    a context manager, which ends its threads.

    Raises:
        OSError: ``root`` cannot be made.
    """

    def __init__(
        self,
        root: Path,
        *,
        keep: int,
        disk: Disk | None = None,
        writers: int = 2,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.root = root
        self._keep = keep
        self._disk = disk or RealDisk()
        self._writer = DirectWriter(self._disk, writers=writers, block_bytes=block_bytes)
        self._make(root)
        self._name_root()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.__exit__()

    def parts(self) -> list[Part]:
        """The parts that are complete, the newest last."""
        return parts_in(self._keys())

    def free_bytes(self) -> int:
        """What can still be written."""
        return self._disk.free_bytes(self.root)

    def write(
        self,
        part: Part,
        data: memoryview,
        describe: Callable[[Sums], Manifest],
    ) -> Manifest:
        """Write a part, which is complete when this returns. One that is there already, whole and
        the same, is left as it is.

        Args:
            describe: the manifest of data with these sums.

        Raises:
            OSError: no space, or the disk failed; older parts are untouched, and what was written
                of this one is gone.
        """
        probe.point("snapshot.before-write")
        folder = self._folder(part)
        try:
            manifest = self._there(part, data, describe)
            if manifest is None:
                self._unlink(self.root / part.manifest_key)  # what is written over is none any more
                manifest = describe(self._writer.write(self.root / part.data_key, [data]))
                probe.point("snapshot.before-rename")
                self._put(self.root / part.manifest_key, manifest.encode())
            for directory in (folder, *folder.parents):
                self._disk.sync_directory(directory)
                if directory == self.root:
                    break
        except OSError:
            with suppress(OSError):
                self._remove(part)
            raise
        probe.point("snapshot.after-rename")
        return manifest

    def manifest(self, part: Part, *, job: str | None = None) -> Manifest:
        """Its manifest.

        Raises:
            OtherJobError: of another job than ``job``.
            ManifestError: damaged; names the file.
            OSError: it is not there or cannot be read.
        """
        path = self.root / part.manifest_key
        descriptor = self._disk.open(path)
        try:
            data = memoryview(bytearray(self._disk.size(descriptor)))
            read = self._disk.pread(descriptor, data, 0)
        finally:
            self._disk.close(descriptor)
        try:
            return Manifest.decode(bytes(data[:read]), part=part, job=job)
        except OtherJobError:
            raise
        except ManifestError as error:
            raise ManifestError(f"{path}: {error}") from error

    def read(self, part: Part, sums: Sums, target: memoryview) -> None:
        """Fill ``target`` with the part, verified.

        Raises:
            ManifestError: its length or bytes are not what ``sums`` says.
            OSError: it is not there or cannot be read.
        """
        read_into(self._disk, self.root / part.data_key, sums, [target])

    @contextmanager
    def mapped(self, part: Part) -> Iterator[memoryview]:
        """The part's bytes, read as they are needed: they never are all in memory at once."""
        with open(self.root / part.data_key, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                yield memoryview(b"")
                return
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                view = memoryview(mapped)
                try:
                    yield view
                finally:
                    view.release()

    def _make(self, directory: Path) -> None:
        """Make a directory, and those above it that are missing."""
        with suppress(FileExistsError):
            try:
                self._disk.mkdir(directory)
            except FileNotFoundError:
                self._make(directory.parent)
                self._disk.mkdir(directory)

    def _name_root(self) -> None:
        """Make the directory's own name durable, and the names above it: an earlier process may
        have made them and died before it could."""
        root = self.root.absolute()
        self._disk.sync_directory(root)  # raises if it is none
        for directory in root.parents:
            with suppress(PermissionError):  # whoever made it has to
                self._disk.sync_directory(directory)

    def _folder(self, part: Part) -> Path:
        """Its folder, made."""
        folder = self.root
        for name in part.folder.rstrip("/").split("/"):
            folder /= name
            with suppress(FileExistsError):
                self._disk.mkdir(folder)
        return folder

    def _there(
        self, part: Part, data: memoryview, describe: Callable[[Sums], Manifest]
    ) -> Manifest | None:
        """Its manifest if the same part is there already and whole, which is not put at risk by
        writing over it."""
        try:
            manifest = self.manifest(part)
            manifest.check(data)
            if describe(manifest.sums) != manifest:
                return None
            verify(self._disk, self.root / part.data_key, manifest.sums)
        except (ManifestError, OSError):
            return None
        return manifest

    def _put(self, path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + _BESIDE)
        descriptor = self._disk.create(beside)
        try:
            left, at = memoryview(data), 0
            while left:
                written = self._disk.pwrite(descriptor, left, at)
                left, at = left[written:], at + written
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(beside, path)

    def tidy(self, newest: Part, in_use: Collection[Part] = ()) -> None:
        """Remove the parts of older steps that are surplus and not ``in_use``, and what a crash
        left unfinished of them; ``newest`` is complete.

        Raises:
            OSError: something cannot be removed.
        """
        steps = {part.of.step for part in self.parts()}
        least = 2 if newest.of.count > 1 else 1  # others may not have written their part yet
        keep = max(self._keep, least)
        old = set(surplus(steps, keep, [part.of.step for part in in_use]))
        for part in sorted({p for key in self._below(_DEPTH - 1) if (p := Part.of_key(f"{key}/"))}):
            unfinished = part.of.step < newest.of.step and part.of.step not in steps
            if part.of.step in old or unfinished:
                self._remove(part)
        for key in (*self._below(_DEPTH - 2), *self._below(_DEPTH - 3)):
            if key.startswith(_OURS) and not self._names(self.root / key):
                with suppress(OSError):  # no directory
                    self._disk.rmdir(self.root / key)

    def _remove(self, part: Part) -> None:
        folder = self.root / part.folder
        self._unlink(self.root / part.manifest_key)  # first: without it the rest is no snapshot
        for name in self._names(folder):
            self._unlink(folder / name)
        for directory in (folder, folder.parent, folder.parent.parent):
            with suppress(OSError):  # not empty, or gone
                self._disk.rmdir(directory)

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._disk.unlink(path)

    def _keys(self) -> list[str]:
        return self._below(_DEPTH)

    def _below(self, depth: int) -> list[str]:
        """What lies so many names below the root."""
        paths = [self.root]
        for _ in range(depth):
            paths = [path / name for path in paths for name in self._names(path)]
        return [str(path.relative_to(self.root)) for path in paths]

    def _names(self, path: Path) -> list[str]:
        try:
            return self._disk.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
