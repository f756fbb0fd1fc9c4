"""The catalogue on the reference trainer: what the README promises, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import chaosspot
from chaosspot import history as h
from chaosspot.oracles.lineage import Lineage
from chaosspot.verdict import Outcome

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.mark.parametrize("name", ["spot-notice", "sudden-kill", "zone-loss", "everyone-gone"])
def test_the_reference_trainer_survives(name: str, tmp_path: Path) -> None:
    verdict = chaosspot.attack(name, nodes=4, seed=2, runs=tmp_path)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    run = Path(verdict.run)
    records = h.read(run / "history.jsonl")
    lineage = Lineage(records).commits
    twin = Lineage(h.read(run / "twin.jsonl")).commits
    assert len(lineage) > 20
    for step, commit in lineage.items():
        assert commit.digest == twin[step].digest
        assert commit.samples == (1,) * 8
    if name == "everyone-gone":
        stored = [r for r in records if isinstance(r, h.Restore) and r.source == "store"]
        assert stored
        assert min(r.step for r in stored) > 0


@pytest.mark.parametrize("name", ["store-corrupt-restore", "coordinator-cut"])
def test_it_survives_a_bad_store_and_bad_links(name: str, tmp_path: Path) -> None:
    verdict = chaosspot.attack(name, seed=2, runs=tmp_path)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    records = h.read(Path(verdict.run) / "history.jsonl")
    if name == "store-corrupt-restore":
        flipped = {r.key for r in records if isinstance(r, h.StoreMisbehaved)}
        restored = {r.step for r in records if isinstance(r, h.Restore) and r.source == "store"}
        assert flipped
        assert not {f"step-{step:010d}/state.safetensors" for step in restored} & flipped
