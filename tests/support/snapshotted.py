"""States small enough to be saved in a moment."""

from __future__ import annotations

from pathlib import Path

import torch

from chaosspot.trainer.config import TrainConfig
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.staging import Staged
from chaosspot.trainer.state import TrainState

JOB = "job"


def tiny_state(seed: int = 0) -> TrainState:
    config = TrainConfig(
        data=Path("unused"), steps=1, width=16, layers=1, heads=2, seq_len_bytes=8, seed=seed
    )
    return TrainState(config, torch.device("cpu"))


def advance(state: TrainState, steps: int = 1) -> TrainState:
    for _ in range(steps):
        rows = torch.arange(9).view(1, 9) + state.step
        state.gradient.zero_()
        state.model.loss(rows).backward()
        state.update()
    return state


def write(flash: Flash, state: TrainState, job: str = JOB) -> Manifest:
    staged = Staged(state)
    staged.copy(state)
    manifest = staged.manifest(world=1, generation=1, job=job, digest=state.digest())
    flash.write(staged, manifest)
    return manifest
