"""The mutants of ``suites/bench/weaken.py`` are of the oracles as they are now."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
WEAKEN = runpy.run_path(str(ROOT / "suites/bench/weaken.py"))


def test_what_a_mutant_changes_is_there_exactly_once() -> None:
    for name, changes in WEAKEN["MUTANTS"].items():
        text = (ROOT / WEAKEN["ORACLES"] / f"{name}.py").read_text()
        assert {old: text.count(old) for old, _ in changes} == {old: 1 for old, _ in changes}
        assert len(changes) >= 3
