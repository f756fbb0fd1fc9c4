"""The undo records of one lease: an append-only file, on disk before anything acts.

``{"token": 3, "undo": {...}}`` promises; a later line with the same token replaces it;
``{"token": 3, "done": "..."}`` says that it was kept.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import msgspec

from chaosspot.undo.kinds import Undo
from chaosspot.undo.state import naming

__all__ = ["Journal", "heal", "read"]


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    token: int
    undo: Undo | None = None
    done: str | None = None


class Journal:
    """The writer. Its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._open: dict[int, Undo] = {}
        self._last = -1
        self._drop_torn_line()

    def promise(self, undo: Undo) -> int:
        """Record what will have to be undone; on disk when this returns."""
        with self._lock:
            self._last += 1
            self._write(_Line(token=self._last, undo=undo), durable=True)
            self._open[self._last] = undo
            return self._last

    def amend(self, token: int, undo: Undo) -> None:
        """Replace a promise, by one that knows more; on disk when this returns."""
        with self._lock:
            self._write(_Line(token=token, undo=undo), durable=True)
            self._open[token] = undo

    def kept(self, token: int, done: str = "") -> None:
        """The promise is kept: undone and verified."""
        with self._lock:
            # Not durable: when this line is lost, undoing once more does no harm.
            self._write(_Line(token=token, done=done), durable=False)
            self._open.pop(token, None)

    def open_promises(self) -> dict[int, Undo]:
        """What was promised through this writer and not kept."""
        with self._lock:
            return dict(self._open)

    def close(self) -> None:
        with self._lock:
            os.close(self._file)

    def _write(self, line: _Line, *, durable: bool) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with naming(self._path):
            size = os.fstat(self._file).st_size
            if os.write(self._file, data) != len(data):
                os.ftruncate(self._file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(self._file)

    def _drop_torn_line(self) -> None:
        """Nothing acted on a line that is not complete, and the next one must not fuse with it."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        if data and not data.endswith(b"\n"):
            os.ftruncate(self._file, data.rfind(b"\n") + 1)


def read(path: Path) -> tuple[dict[int, Undo], list[str]]:
    """Promises not kept, and a message for each line that could not be read.

    A torn last line is neither: its writer died before it acted.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}, []
    promised: dict[int, Undo] = {}
    broken = []
    for number, text in enumerate(lines[:-1], start=1):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError as error:
            broken.append(f"{path}:{number}: not an undo record ({error}): {text[:80]!r}")
            continue
        if line.undo is not None:
            promised[line.token] = line.undo
        else:
            promised.pop(line.token, None)
    return promised, broken


def heal(promised: dict[int, Undo], journal: Journal) -> tuple[list[str], list[str]]:
    """Undo the promises, latest first; returns what was done and what could not be done."""
    done, failed = [], []
    for token, undo in sorted(promised.items(), reverse=True):
        try:
            result = undo.heal()
        except OSError as error:
            failed.append(f"could not undo {undo.describe()}: {error}")
            continue
        journal.kept(token, result or "")
        done.append(result or f"{undo.describe()}: nothing was left")
    return done, failed
