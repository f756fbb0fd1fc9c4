"""Keeps the cache of twins small: what nobody used for long goes, oldest first."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["prune", "touch"]

_OLDEST_S = 30 * 86_400.0
_MOST_BYTES = 1 << 30
_IN_USE_S = 3600.0  # a run that found a twin reads it for minutes at most
_DRAFT_S = 86_400.0  # what a writer that died left


class _Kept(NamedTuple):
    """A twin: its history, whose time of change is when it was last used, and what is beside it."""

    used_s: float
    size_bytes: int
    history: Path
    beside: tuple[Path, ...]


def touch(history: Path) -> None:
    """Note that a kept twin is used now."""
    with contextlib.suppress(OSError):
        os.utime(history)


def prune(folder: Path, *, now_s: float | None = None, most_bytes: int = _MOST_BYTES) -> None:
    """Remove twins not used for 30 days and, oldest first, what is more than ``most_bytes``.

    Nothing that was used within the last hour is touched: a run may be reading it. ``now_s`` are
    seconds since the epoch. What cannot be removed stays.
    """
    now_s = time.time() if now_s is None else now_s
    with contextlib.suppress(OSError):
        for draft in folder.glob(".*"):
            if now_s - draft.lstat().st_mtime > _DRAFT_S:
                _remove(draft)
    kept = sorted(found for path in _listed(folder) if (found := _kept(path)) is not None)
    total_bytes = sum(twin.size_bytes for twin in kept)
    for twin in kept:
        age_s = now_s - twin.used_s
        if age_s <= _IN_USE_S or (age_s <= _OLDEST_S and total_bytes <= most_bytes):
            continue
        for path in (twin.history, *twin.beside):  # without its history a twin is none
            _remove(path)
        total_bytes -= twin.size_bytes


def _listed(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    except OSError:
        return []


def _kept(history: Path) -> _Kept | None:
    try:
        beside = tuple(
            p for p in history.parent.glob(f"{glob.escape(history.stem)}.*") if p != history
        )
        size_bytes = sum(_size_bytes(path) for path in (history, *beside))
        return _Kept(history.stat().st_mtime, size_bytes, history, beside)
    except OSError:  # another run removed it just now
        return None


def _size_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
