"""Brings the state of one rank from memory to flash and on to the store, and back."""

from __future__ import annotations

import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path

from chaosspot import probe
from chaosspot.trainer.config import InputError, TrainConfig
from chaosspot.trainer.place import ObjectPlace
from chaosspot.trainer.plan import DrainPlan
from chaosspot.trainer.restore import Recovery
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.staging import Staged
from chaosspot.trainer.snapshot.store import DirectoryStore, Store
from chaosspot.trainer.snapshot.uploader import Uploader
from chaosspot.trainer.snapshot.worker import Worker
from chaosspot.trainer.state import TrainState

__all__ = ["SnapshotKeeper"]

_log = logging.getLogger(__name__)

_FLASH_PATIENCE_S = 2.0  # a snapshot is skipped when the one before is still being written then


class SnapshotKeeper:
    """Owns the tiers and the two threads between them; ``stack`` ends them.

    Args:
        job: identity of the trajectory, see :meth:`TrainConfig.job_id`.

    Raises:
        InputError: the flash directory cannot be made.
    """

    def __init__(self, config: TrainConfig, state: TrainState, job: str, stack: ExitStack) -> None:
        self._state = state
        self._job = job
        self._staged = Staged(state)
        self._flash = Flash(_flash_root(config.flash, stack), config.keep_snapshots)
        store = _store(config.store) if config.store else None
        self._uploader = (
            Uploader(self._flash, store, job=job, keep=config.keep_snapshots) if store else None
        )
        if self._uploader:
            stack.enter_context(self._uploader)
        self._writer = stack.enter_context(Worker("flash"))
        self.recovery = Recovery(local=self._flash.files, store=store, job=job)

    @property
    def has_store(self) -> bool:
        return self._uploader is not None

    def holds(self, step: int) -> bool:
        """Whether that step is on flash or on its way there."""
        return step == self._staged.step or step in self._flash.steps()

    def take(self, *, world: int, generation: int, digest: str | None, upload: bool) -> None:
        """Copy the state; write it to flash, and then upload it, while training goes on."""
        if not self._writer.wait_idle(_FLASH_PATIENCE_S):
            _log.warning("snapshot of step %d skipped: flash is busy", self._state.step)
            return
        self._staged.copy(self._state)
        step, size = self._staged.step, self._staged.data_bytes
        probe.emit("snapshot", step=step, stage="staged", bytes=size, shards=1)

        def write() -> None:
            manifest = self._staged.manifest(
                world=world, generation=generation, job=self._job, digest=digest
            )
            in_use = self._uploader.in_use if self._uploader else ()
            self._flash.write(self._staged, manifest, in_use)
            probe.emit("snapshot", step=step, stage="local", bytes=size, shards=1)
            if upload and self._uploader:
                self._uploader.submit(step)

        self._writer.submit(write)

    def flush(self, step: int, plan: DrainPlan) -> None:
        """Bring ``step`` as far as ``plan`` wants and its time allows."""
        written = self._writer.wait_idle(plan.flush_timeout_s)
        if plan.upload and written and self._uploader:
            self._uploader.submit(step)  # does nothing when the store has it already
            self._uploader.wait(plan.flush_timeout_s)

    def settle(self, timeout_s: float) -> bool:
        """Wait for what is under way; False when that took longer than ``timeout_s``."""
        written = self._writer.wait_idle(timeout_s)
        return written and (self._uploader is None or self._uploader.wait(timeout_s))


def _store(place: Path | ObjectPlace) -> Store:
    if isinstance(place, Path):
        return DirectoryStore(place)
    from chaosspot.trainer.snapshot.object_store import ObjectStore  # importing boto3 takes a while

    return ObjectStore(place)


def _flash_root(root: Path | None, stack: ExitStack) -> Path:
    """The given directory, made; or a temporary one for this run."""
    if root is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaosspot-flash-")))
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"flash directory cannot be made: {str(root)!r}: {reason}") from error
    return root
