"""The cache of twins stays small, and what may be in use stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from histories import undisturbed

from chaosspot import history as h
from chaosspot.conductor import twins
from chaosspot.conductor.pruning import prune
from chaosspot.conductor.twins import Twin

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


def kept(folder: Path, name: str, *, days: float, size_bytes: int = 1000) -> Path:
    """A twin of that size, half of it a checkpoint of two files, last used so many days ago."""
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"x" * (size_bytes - 2 * (size_bytes // 4)))
    beside = folder / f"{name}.final"
    beside.mkdir()
    for part in "ab":
        (beside / part).write_bytes(b"x" * (size_bytes // 4))
    os.utime(path, (NOW_S - days * DAY_S,) * 2)
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def both(*found: str) -> set[str]:
    return {f"{name}.{end}" for name in found for end in ("jsonl", "final")}


def test_what_was_not_used_for_30_days_goes_with_its_checkpoint(tmp_path: Path) -> None:
    kept(tmp_path, "old-[1]", days=30.1)
    kept(tmp_path, "young-[1]", days=29.9)
    prune(tmp_path, now_s=NOW_S)
    assert names(tmp_path) == both("young-[1]")


def test_the_oldest_go_until_the_rest_is_small_enough(tmp_path: Path) -> None:
    for days in (4, 1, 3, 2):
        kept(tmp_path, f"of-{days}", days=days)
    prune(tmp_path, now_s=NOW_S, most_bytes=2000)
    assert names(tmp_path) == both("of-1", "of-2")
    prune(tmp_path, now_s=NOW_S, most_bytes=1999)
    assert names(tmp_path) == both("of-1")


def test_what_may_be_in_use_stays_however_large_it_is(tmp_path: Path) -> None:
    kept(tmp_path, "in-use", days=0.9 / 24, size_bytes=10_000)
    kept(tmp_path, "not", days=1.1 / 24)
    prune(tmp_path, now_s=NOW_S, most_bytes=100)
    assert names(tmp_path) == both("in-use")


def test_what_a_dead_writer_left_goes_after_a_day(tmp_path: Path) -> None:
    for name, days in ((".a.jsonl.7", 1.1), (".b.jsonl.8", 0.9)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOW_S - days * DAY_S,) * 2)
    prune(tmp_path, now_s=NOW_S)
    assert names(tmp_path) == {".b.jsonl.8"}


def test_a_cache_that_is_not_there_is_small(tmp_path: Path) -> None:
    prune(tmp_path / "none", now_s=NOW_S)


def test_keeping_a_twin_prunes_and_finding_one_is_using_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = b"".join(h.encode(record) for record in undisturbed(10).records)
    old, used = tmp_path / "old.jsonl", tmp_path / "used.jsonl"
    for path in (old, used):
        path.write_bytes(history)
        os.utime(path, (1.0, 1.0))
    assert twins.cached(used, 5) is not None
    assert used.stat().st_mtime > 1.0
    twins.keep(tmp_path / "new.jsonl", Twin(history=history))
    assert names(tmp_path) == {"used.jsonl", "new.jsonl"}
