"""Brings the state of one rank from memory to flash and on to the store, and back."""

from __future__ import annotations

import logging
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from chaosspot import probe
from chaosspot.trainer.config import InputError, TrainConfig
from chaosspot.trainer.place import ObjectPlace
from chaosspot.trainer.plan import DrainPlan, Rates
from chaosspot.trainer.restore import Recovery
from chaosspot.trainer.snapshot.direct import Sums
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.parts import Part
from chaosspot.trainer.snapshot.staging import Stage, Staged
from chaosspot.trainer.snapshot.store import DirectoryStore, Store
from chaosspot.trainer.snapshot.uploader import Uploader
from chaosspot.trainer.snapshot.worker import Worker
from chaosspot.trainer.state import TrainState

__all__ = ["SnapshotKeeper"]

_log = logging.getLogger(__name__)


class SnapshotKeeper:
    """Owns the tiers and the threads between them; ``stack`` ends them.

    Args:
        job: identity of the trajectory, see :meth:`TrainConfig.job_id`.

    Raises:
        InputError: the flash directory cannot be made or written.
    """

    def __init__(self, config: TrainConfig, state: TrainState, job: str, stack: ExitStack) -> None:
        self._state = state
        self._job = job
        self.stage = Stage(state)
        self._flash = stack.enter_context(_flash(config, stack))
        self._flash_rate: float | None = None
        self._taken: Part | None = None
        self._taken_s = time.monotonic()
        self._waiting: Staged | None = None
        store = _store(config.store) if config.store else None
        self._uploader = (
            Uploader(self._flash, store, job=job, keep=config.keep_snapshots) if store else None
        )
        if self._uploader:
            stack.enter_context(self._uploader)
        self._writer = stack.enter_context(Worker("flash"))
        self.recovery = stack.enter_context(
            Recovery(flash=self._flash, store=store, job=job, stage=self.stage)
        )
        self._warn_of_little_space()

    @property
    def has_store(self) -> bool:
        return self._uploader is not None

    @property
    def total_bytes(self) -> int:
        """Size of the whole state."""
        return self.stage.layout.total_bytes

    @property
    def rates(self) -> Rates:
        """What the tiers did last."""
        return Rates(flash=self._flash_rate, store=self._uploader.rate if self._uploader else None)

    @property
    def since_s(self) -> float:
        """Time since the last snapshot, or since the start."""
        return time.monotonic() - self._taken_s

    @property
    def busy(self) -> bool:
        """Whether the disk is behind: one snapshot is written, and another waits."""
        return self._writer.waits

    @property
    def uploading(self) -> bool:
        """Whether one is on its way to the store."""
        return self._uploader is not None and not self._uploader.wait(0.0)

    def at_risk(self, world: int) -> bool:
        """Whether one of those who took the last snapshot is gone from a membership of ``world``,
        perhaps before its part was saved."""
        return self._taken is not None and world < self._taken.of.count

    def take(self, part: Part, *, digest: str | None, upload: bool) -> None:
        """Copy the state; write this rank's part to flash, and upload it, while training goes on.

        A state that waits to be written is given up for the newer one.
        """
        if part == self._taken:
            return
        if self._writer.withdraw() and self._waiting is not None:
            _log.warning("snapshot of step %d given up: flash is slow", self._waiting.step)
            self._waiting.release()
        staged = self.stage.copy(self._state)
        assert staged is not None, "one buffer is written, and none waits"
        self._taken, self._taken_s, self._waiting = part, time.monotonic(), staged
        size, stall_s = len(staged.bytes_of(part)), self.stage.stall_s
        step, shards = part.of.step, part.of.count
        probe.emit(
            "snapshot", step=step, stage="staged", bytes=size, shards=shards, stall_s=stall_s
        )

        def describe(sums: Sums) -> Manifest:
            return Manifest.of(part, self.stage.layout, sums, job=self._job, digest=digest)

        def write() -> None:
            try:
                staged.wait()
                start_s = time.perf_counter()
                self._flash.write(part, staged.bytes_of(part), describe)
                self._flash_rate = size / (time.perf_counter() - start_s)
            finally:
                staged.release()
            probe.emit("snapshot", step=step, stage="local", bytes=size, shards=shards)
            if upload and self._uploader:
                self._uploader.submit(part)
            self._flash.tidy(part, self._uploader.in_use if self._uploader else ())

        self._writer.submit(write)

    def flush(self, part: Part, plan: DrainPlan) -> None:
        """Bring ``part`` as far as ``plan`` wants and its time allows."""
        deadline = time.monotonic() + plan.flush_timeout_s
        written = self._writer.wait_idle(plan.flush_timeout_s)
        if plan.upload and written and self._uploader:
            self._uploader.submit(part)  # does nothing when the store has it already
            self._uploader.wait(max(0.0, deadline - time.monotonic()))

    def settle(self, timeout_s: float) -> bool:
        """Wait for what is under way; False when that took longer than ``timeout_s``."""
        written = self._writer.wait_idle(timeout_s)
        return written and (self._uploader is None or self._uploader.wait(timeout_s))

    def _warn_of_little_space(self) -> None:
        free = self._flash.free_bytes()
        if free < self.total_bytes:
            _log.warning(
                "%s has %d bytes left, the whole state needs %d: a node that is the last to go "
                "cannot save it",
                self._flash.root,
                free,
                self.total_bytes,
            )


def _store(place: Path | ObjectPlace) -> Store:
    if isinstance(place, Path):
        return DirectoryStore(place)
    from chaosspot.trainer.snapshot.object_store import ObjectStore  # importing boto3 takes a while

    return ObjectStore(place)


def _flash(config: TrainConfig, stack: ExitStack) -> Flash:
    """In the given directory, made; or in a temporary one for this run."""
    root = config.flash
    if root is None:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaosspot-flash-")))
    try:
        return Flash(root, keep=config.keep_snapshots)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"flash directory cannot be made: {str(root)!r}: {reason}") from error
