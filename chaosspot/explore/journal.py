"""The journal of an exploration: one line an attack, on disk before the next one begins.

The first line says what is explored. A last line that a kill has torn is dropped; anything else
that is no line of ours is an error.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Literal, Self

import msgspec

from chaosspot.explore.ground import Ground
from chaosspot.explore.trial import Trial
from chaosspot.schedule import Schedule
from chaosspot.trainers import Trainer

__all__ = ["Entry", "Header", "Journal", "JournalError"]

_VERSION = 1

Purpose = Literal["undisturbed", "search", "shrink", "replay"]


class JournalError(ValueError):
    """A journal is missing, in use, or damaged."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="exploration"):
    """What is explored: enough to go on with it, and to know that it is the same.

    ``named``: the trainer as it was asked for, a name or a path.
    """

    version: int = _VERSION
    trainer: Trainer
    named: str = ""
    ground: Ground
    seed: int


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag="attack"):
    """One attack that was made and judged."""

    purpose: Purpose
    key: str
    schedule: Schedule
    trial: Trial


class Journal:
    """Appends entries and keeps them; one process at a time may have it."""

    def __init__(self, path: Path, file: int, header: Header, entries: list[Entry]) -> None:
        self.path = path
        self.header = header
        self.entries = entries
        self._file = file

    @classmethod
    def create(cls, path: Path, header: Header) -> Self:
        """A new one.

        Raises:
            OSError: it is there already, or cannot be written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(path, flags, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        journal = cls(path, file, header, [])
        journal._append(header)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return journal

    @classmethod
    def resume(cls, path: Path) -> Self:
        """One that is there, to go on with.

        Raises:
            JournalError: with the path and what is wrong.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise JournalError(f"{str(path)!r} is no exploration: {error.strerror}") from error
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise JournalError(f"{str(path)!r} is in use: it is being explored") from error
            data = path.read_bytes()
            header, entries = parse(data, origin=str(path))
            os.ftruncate(file, data.rfind(b"\n") + 1)
        except BaseException:
            os.close(file)
            raise
        return cls(path, file, header, entries)

    def add(self, entry: Entry) -> None:
        """Write one attack down; it is on disk when this returns.

        Raises:
            OSError: with the path.
        """
        self._append(entry)
        self.entries.append(entry)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, line: Header | Entry) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse(data: bytes, *, origin: str) -> tuple[Header, list[Entry]]:
    """What a journal says; a torn last line is left out.

    Raises:
        JournalError: a line that is none of ours; the message names it.
    """
    lines = data.split(b"\n")[:-1]
    found: list[Header | Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Header | Entry))
        except (ValueError, TypeError, RecursionError) as error:
            raise JournalError(f"{origin}:{number}: not a line of a journal: {error}") from error
    header, entries = (found[0] if found else None), found[1:]
    if not isinstance(header, Header) or header.version != _VERSION:
        version = getattr(header, "version", None)
        what = "its first line does not say what" if version is None else f"version = {version}"
        raise JournalError(f"{origin} is no exploration that can be gone on with: {what}")
    if any(isinstance(entry, Header) for entry in entries):
        raise JournalError(f"{origin}: it has two first lines")
    return header, [entry for entry in entries if isinstance(entry, Entry)]
