"""States small enough to be saved in a moment, and one rank that saves and restores them."""

from __future__ import annotations

from pathlib import Path

import torch

from chaosspot.trainer.agreement import agree
from chaosspot.trainer.config import TrainConfig
from chaosspot.trainer.restore import Recovery
from chaosspot.trainer.snapshot.disk import Disk
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.parts import Part, SnapshotId
from chaosspot.trainer.snapshot.staging import Stage
from chaosspot.trainer.snapshot.store import Store
from chaosspot.trainer.state import TrainState

JOB = "job"
BLOCK_BYTES = 4096


def tiny_state(seed: int = 0, ballast_bytes: int = 0) -> TrainState:
    config = TrainConfig(
        data=Path("unused"),
        steps=1,
        width=16,
        layers=1,
        heads=2,
        seq_len_bytes=8,
        seed=seed,
        ballast_bytes=ballast_bytes,
    )
    return TrainState(config, torch.device("cpu"))


def advance(state: TrainState, steps: int = 1) -> TrainState:
    for _ in range(steps):
        rows = torch.arange(9).view(1, 9) + state.step
        state.gradient.zero_()
        state.model.loss(rows).backward()
        state.update()
    return state


def flash_at(root: Path, *, keep: int = 3, disk: Disk | None = None) -> Flash:
    return Flash(root, keep=keep, disk=disk, writers=2, block_bytes=BLOCK_BYTES)


def whole(step: int, generation: int = 1) -> Part:
    """The only part of a snapshot that one rank took."""
    return Part(SnapshotId(step, generation, 1), 0)


def write(
    flash: Flash,
    state: TrainState,
    part: Part | None = None,
    *,
    job: str = JOB,
    in_use: tuple[Part, ...] = (),
) -> Part:
    part = part or whole(state.step)
    stage = Stage(state)
    staged = stage.copy(state)
    assert staged is not None
    digest = state.digest()
    flash.write(
        part,
        staged.bytes_of(part),
        lambda sums: Manifest.of(part, stage.layout, sums, job=job, digest=digest),
    )
    flash.tidy(part, in_use)
    return part


def restore(
    flash: Flash, store: Store | None = None, *, current_step: int = 0, job: str = JOB
) -> tuple[tuple[str, int] | None, TrainState]:
    """What one rank alone goes on from, and the state then: (tier, step), or None."""
    state = tiny_state(seed=9)
    with Recovery(flash=flash, store=store, job=job, stage=Stage(state)) as recovery:
        recovery.look()
    while (reading := agree([recovery.holdings(current_step)])) is not None:
        restored = recovery.read(reading, 0)
        if restored.whole and not restored.good:
            recovery.reject(reading.snapshot)
        if restored.good:
            state.load_state_dict(dict(restored.tensors()))
        restored.loan.end()
        if restored.good:
            return ("local" if reading.flash else "store", reading.snapshot.step), state
    return None, state
