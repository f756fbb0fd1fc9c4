"""Carries this rank's parts from flash to the store, out of band, newest first."""

from __future__ import annotations

import time
from typing import Self

from chaosspot import probe
from chaosspot.trainer.plan import superfluous
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import ManifestError
from chaosspot.trainer.snapshot.parts import Part, SnapshotId, complete, parts_in
from chaosspot.trainer.snapshot.store import Store
from chaosspot.trainer.snapshot.worker import Worker

__all__ = ["Uploader"]


class Uploader:
    """One thread, joined when the block ends; failures are logged and never reach training.

    Args:
        job: identity that the snapshots must carry.
        keep: steps of which complete snapshots are left in the store.
    """

    def __init__(self, flash: Flash, store: Store, *, job: str, keep: int) -> None:
        self._flash = flash
        self._store = store
        self._job = job
        self._keep = keep
        self._worker = Worker("upload")
        self._uploading: Part | None = None
        self.rate: float | None = None
        """Bytes per second of the last upload."""

    def __enter__(self) -> Self:
        self._worker.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__()

    @property
    def in_use(self) -> tuple[Part, ...]:
        """Parts on flash that are being read right now."""
        part = self._uploading
        return () if part is None else (part,)

    def submit(self, part: Part) -> None:
        """Upload that part when the one under way is done; a newer one takes its place."""
        self._worker.submit(lambda: self._try(part))

    def wait(self, timeout_s: float) -> bool:
        """Wait until all is uploaded; False when time ran out."""
        return self._worker.wait_idle(timeout_s)

    def _try(self, part: Part) -> None:
        self._uploading = part
        try:
            self._upload(part)
        except OSError as error:
            probe.emit("soft-error", what="upload", step=part.of.step, error=str(error))
            raise
        finally:
            self._uploading = None

    def _upload(self, part: Part) -> None:
        keys = self._store.keys()
        if part in parts_in(keys) or part.of.step in {of.step for of in complete(keys)}:
            return
        try:
            manifest = self._flash.manifest(part, job=self._job)
            with self._flash.mapped(part) as data:
                manifest.check(data)  # never carry damage into the store
                start_s = time.perf_counter()
                self._store.put(part.data_key, data)
                self._store.verify(part.data_key, data)
                self.rate = len(data) / (time.perf_counter() - start_s)
        except ManifestError as error:
            raise OSError(f"part {part.index} of {part.of}: {error}") from error
        probe.point("upload.before-manifest")
        self._store.put(part.manifest_key, manifest.encode())
        probe.point("upload.after-manifest")
        keys = self._store.keys()
        if part.of in complete(keys):  # this was the last part of it
            self._is_durable(part.of, manifest.total_bytes)
            self._tidy(keys, part.of.step)

    def _is_durable(self, snapshot: SnapshotId, size: int) -> None:
        objects = [key for part in snapshot.parts() for key in (part.data_key, part.manifest_key)]
        probe.emit(
            "snapshot",
            step=snapshot.step,
            stage="durable",
            bytes=size,
            shards=snapshot.count,
            objects=objects,
        )

    def _tidy(self, keys: list[str], newest: int) -> None:
        """Remove what ``newest``, which is durable now, makes superfluous."""
        there = {part for key in keys if (part := Part.of_key(key))}
        for part in superfluous(there, complete(keys), self._keep):
            self._store.delete(part.manifest_key)
            self._store.delete(part.data_key)
        for key in self._store.unfinished():
            begun = Part.of_key(key)
            if begun is not None and begun.of.step <= newest:
                self._store.discard(key)
