"""Reads what a trainer's processes report, as they report it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from chaosspot import history as h
from chaosspot.conductor.own import own
from chaosspot.trainers import Patterns

__all__ = ["Tail"]


class Tail:
    """The complete lines of all files of a directory, each once.

    Events files hold JSON lines. Where ``patterns`` are given, node logs are read by them
    instead. A line without its newline is not yet written, or torn by a kill, and is left out.
    """

    def __init__(self, *, events: Path, logs: Path, patterns: Patterns | None) -> None:
        self._folder, self._pattern = (logs, "*.log") if patterns else (events, "*.jsonl")
        self._patterns = patterns
        self._files: dict[Path, BinaryIO] = {}
        self._pending: dict[Path, bytes] = {}

    def poll(self) -> Iterator[h.Record]:
        """Records of the lines completed since the last call."""
        for path in sorted(self._folder.glob(self._pattern)):
            if path not in self._files:
                self._files[path] = path.open("rb")
                self._pending[path] = b""
            data = self._pending[path] + self._files[path].read()
            *lines, self._pending[path] = data.split(b"\n")
            for line in lines:
                record = self._log_line(path, line) if self._patterns else self._event(path, line)
                if record is not None:
                    yield record

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _event(self, path: Path, line: bytes) -> h.Record:
        try:
            fields = msgspec.json.decode(line, type=dict)
            return h.decode({"seq": 0, "t_seen": time.monotonic(), **fields})
        except (ValueError, TypeError) as error:
            return _malformed(path, line.decode(errors="replace"), error)

    def _log_line(self, path: Path, line: bytes) -> h.Record | None:
        text = line.decode(errors="replace")
        fields = self._patterns.parse(text) if self._patterns else None
        if fields is None:
            return None
        header = msgspec.to_builtins(own(h.Other, node=_node(path), name=fields["event"]))
        try:
            return h.decode({**header, **fields})
        except (ValueError, TypeError) as error:
            return _malformed(path, text, error)


def _malformed(path: Path, line: str, error: Exception) -> h.Record:
    return own(h.Malformed, node=_node(path), line=line[:200], reason=str(error))


def _node(path: Path) -> str:
    """Events files are ``<node>.<incarnation>.<rank>.<pid>.jsonl``, logs ``<node>.log``."""
    known = path.name.removesuffix(".log")
    return known if known != path.name else path.name.rsplit(".", 4)[0]
