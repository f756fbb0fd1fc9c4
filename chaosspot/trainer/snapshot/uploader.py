"""Carries complete snapshots from flash to the store, out of band, newest first."""

from __future__ import annotations

from typing import Self

from chaosspot import probe
from chaosspot.trainer.plan import surplus
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import (
    Manifest,
    ManifestError,
    complete_steps,
    data_key,
    manifest_key,
    step_of,
)
from chaosspot.trainer.snapshot.store import Store
from chaosspot.trainer.snapshot.worker import Worker

__all__ = ["Uploader"]


class Uploader:
    """One thread, joined when the block ends; failures are logged and never reach training.

    Args:
        job: identity that the snapshots must carry.
        keep: complete snapshots left in the store.
    """

    def __init__(self, flash: Flash, store: Store, *, job: str, keep: int) -> None:
        self._flash = flash
        self._store = store
        self._job = job
        self._keep = keep
        self._worker = Worker("upload")
        self._uploading: int | None = None

    def __enter__(self) -> Self:
        self._worker.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__()

    @property
    def in_use(self) -> tuple[int, ...]:
        """Steps on flash that are being read right now."""
        step = self._uploading
        return () if step is None else (step,)

    def submit(self, step: int) -> None:
        """Upload that snapshot when the one under way is done; a newer one takes its place."""
        self._worker.submit(lambda: self._try(step))

    def wait(self, timeout_s: float) -> bool:
        """Wait until all is uploaded; False when time ran out."""
        return self._worker.wait_idle(timeout_s)

    def holds(self, step: int) -> bool:
        """Whether the store has a complete snapshot of that step. OSError when it does not say."""
        return step in complete_steps(self._store.keys())

    def _try(self, step: int) -> None:
        try:
            self._upload(step)
        except OSError as error:
            probe.emit("soft-error", what="upload", step=step, error=str(error))
            raise

    def _upload(self, step: int) -> None:
        self._uploading = step
        try:
            if self.holds(step):
                return
            text = self._flash.files.get(manifest_key(step))
            data = self._flash.files.get(data_key(step))
            try:
                manifest = Manifest.decode(text, job=self._job)
                manifest.check(data)  # never carry damage into the store
            except ManifestError as error:
                raise OSError(f"snapshot of step {step}: {error}") from error
            self._store.put(data_key(step), data)
            self._store.verify(data_key(step), data)
            probe.point("upload.before-manifest")
            self._store.put(manifest_key(step), text)
            probe.point("upload.after-manifest")
        finally:
            self._uploading = None
        probe.emit(
            "snapshot",
            step=step,
            stage="durable",
            bytes=manifest.data_bytes,
            shards=1,
            objects=[data_key(step), manifest_key(step)],
        )
        self._tidy(step)

    def _tidy(self, newest: int) -> None:
        """Remove what ``newest``, which is durable now, makes superfluous."""
        for old in surplus(complete_steps(self._store.keys()), self._keep):
            self._store.delete(manifest_key(old))
            self._store.delete(data_key(old))
        for key in self._store.unfinished():
            step = step_of(key)
            if step is not None and step <= newest:
                self._store.discard(key)
