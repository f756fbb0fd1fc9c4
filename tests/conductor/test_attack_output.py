"""Attacks on trainers that are read by what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaosspot import Verdict
from chaosspot import history as h
from chaosspot.schedule import Kill, Target, Trigger
from chaosspot.trainers import Patterns, Promises, Timeouts, Trainer
from chaosspot.verdict import Outcome

BAR = """
import sys, time
for step in range(1, 10**9):
    sys.stderr.write(f"\\r{step % 100:3d}%|###   | {step}/1000 [00:01<00:02, loss={1 / step:.4f}]")
    sys.stderr.flush()
    time.sleep(0.02)
"""


def test_a_progress_bar_that_never_ends_its_line_is_read(attack: Callable[..., Verdict]) -> None:
    literal = BAR.replace("{", "{{").replace("}", "}}")
    trainer = Trainer(
        name="bar",
        command=("{python}", "-c", literal),
        timeouts=Timeouts(start_s=10.0, stall_s=5.0, run_s=60.0),
        patterns=Patterns(commit=r"\| (?P<step>\d+)/1000 .*loss=(?P<loss>[\d.]+)"),
        promises=Promises(recovery_s=10.0),
    )
    verdict = attack(Kill(on=Trigger(at_step=15), target=Target(count=1)), trainer=trainer)
    assert verdict.outcome is Outcome.PASS, verdict.findings
    records: Any = h.read(Path(verdict.run) / "history.jsonl")
    found: dict[str, list[h.Commit]] = {}
    for record in records:
        if isinstance(record, h.Commit):
            found.setdefault(record.node, []).append(record)
    for commits in found.values():
        assert [commit.step for commit in commits] == list(range(1, len(commits) + 1))
    longest = max(found.values(), key=len)
    assert longest[3].loss == 0.25
