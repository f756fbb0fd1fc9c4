"""Snapshots on the node's own disk.

The order of the writes is what a crash at any moment relies on: data, synced; manifest beside its
place, synced; renamed; directories synced. Only then is an older snapshot deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from chaosspot import probe
from chaosspot.trainer.plan import surplus
from chaosspot.trainer.snapshot.manifest import Manifest, complete_steps, data_key, manifest_key
from chaosspot.trainer.snapshot.staging import Staged
from chaosspot.trainer.snapshot.store import DirectoryStore

__all__ = ["Flash"]


class Flash:
    """The snapshots of one rank under ``root``, at most ``keep`` of them complete."""

    def __init__(self, root: Path, keep: int) -> None:
        self.files = DirectoryStore(root)
        """The same files, to read them as one reads the store."""
        self._root = root
        self._keep = keep
        root.mkdir(parents=True, exist_ok=True)

    def steps(self) -> list[int]:
        """Steps of the complete snapshots, in ascending order."""
        return complete_steps(self.files.keys())

    def write(self, staged: Staged, manifest: Manifest, in_use: Collection[int] = ()) -> None:
        """Write a snapshot, then delete what is surplus but not ``in_use``.

        Raises:
            OSError: no space, or the disk failed; older snapshots are untouched, and what was
                written of this one is gone.
        """
        step = manifest.step
        probe.point("snapshot.before-write")
        self.files.delete(manifest_key(step))  # what is now written over is no snapshot any more
        directory = (self._root / data_key(step)).parent
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with open(self._root / data_key(step), "wb", buffering=0) as file:
                for chunk in staged.chunks():
                    _write_all(file.fileno(), chunk)
                os.fsync(file.fileno())
            probe.point("snapshot.before-rename")
            self.files.put(manifest_key(step), manifest.encode())
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        probe.point("snapshot.after-rename")
        for old in surplus(self.steps(), self._keep, in_use):
            self.files.delete(manifest_key(old))
            self.files.delete(data_key(old))
        self._sweep(step)

    def _sweep(self, newest: int) -> None:
        """Remove what an earlier crash left half-written."""
        complete = set(self.steps())
        for directory in self._root.glob("step-*"):
            step = directory.name.removeprefix("step-")
            if step.isdigit() and int(step) < newest and int(step) not in complete:
                shutil.rmtree(directory, ignore_errors=True)


def _write_all(descriptor: int, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]
