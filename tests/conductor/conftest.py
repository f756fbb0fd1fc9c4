"""Attacks on the torch-free trainer: each takes a few seconds of real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaosspot import Verdict
from chaosspot import attack as real_attack
from chaosspot.schedule import ClusterSpec, Group, Schedule

THREE = ClusterSpec(group=(Group(count=3, zones=("a", "b")),))


@pytest.fixture
def attack(tmp_path: Path) -> Callable[..., Verdict]:
    """Attack the minimal trainer on three nodes; run directories go to ``tmp_path``."""

    def run(*faults: Any, **options: Any) -> Verdict:
        schedule = options.pop("schedule", None) or Schedule(cluster=THREE, fault=faults)
        options.setdefault("trainer", "minimal")
        options.setdefault("seed", 1)
        return real_attack(schedule, runs=tmp_path / "runs", **options)

    return run
