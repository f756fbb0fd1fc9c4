"""The reference trainer on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chaosspot import content
from chaosspot.trainer import TrainConfig, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_a_snapshot_taken_from_the_device_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def run(steps: int, place: str) -> tuple[int, str | None, tuple[tuple[int, str], ...]]:
        result = train(
            TrainConfig(
                data=content.content_root() / "fixtures/corpus/apache-2.0.txt",
                steps=steps,
                device="cuda",
                flash=tmp_path / place / "flash",
                store=tmp_path / place / "store",
            )
        )
        return result.step, result.digest, result.restored

    first = run(10, "one")
    assert first[2] == ()
    assert run(20, "one")[2] == ((10, "local"),)
    resumed = run(20, "one")
    straight = run(20, "other")
    assert resumed[1] == straight[1]
