"""Reads what a trainer's processes report, as they report it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from chaosspot import history as h
from chaosspot.conductor.lines import Line, Lines
from chaosspot.conductor.own import own
from chaosspot.probe import boot_id
from chaosspot.trainers import Patterns

__all__ = ["MOST_OUTPUT_BYTES", "Tail"]

_MOST_STEPS = 10**12
_MOST_EVENT_BYTES = 16 << 20  # each micro-shard of a step may have its count in it
MOST_OUTPUT_BYTES = 64 << 10  # longer lines of output are matched by their beginning alone
_READ_BYTES = 1 << 20


class Tail:
    """The complete lines of all files of a directory, each once.

    Events files hold JSON lines. Where ``patterns`` are given, node logs are read by them
    instead; a carriage return ends a line of those too. A line without its end is not yet
    written, or torn by a kill, and is left out. Memory is bounded: of a line of output longer than
    64 KiB the beginning counts, and an event longer than 16 MiB is no event.
    """

    def __init__(self, *, events: Path, logs: Path, patterns: Patterns | None) -> None:
        self._folder, self._pattern = (logs, "*.log") if patterns else (events, "*.jsonl")
        self._patterns = patterns
        self._files: dict[Path, BinaryIO] = {}
        self._lines: dict[Path, Lines] = {}

    def poll(self) -> Iterator[h.Record]:
        """Records of the lines completed since the last call."""
        for path in sorted(self._folder.glob(self._pattern)):
            if path not in self._files:
                if not path.is_file():  # opening a pipe would wait for its writer
                    continue
                self._files[path] = path.open("rb")
                self._lines[path] = Lines(
                    returns=self._patterns is not None,
                    most_bytes=MOST_OUTPUT_BYTES if self._patterns else _MOST_EVENT_BYTES,
                )
            for line in self._completed(path):
                record = self._log_line(path, line) if self._patterns else self._event(path, line)
                if record is not None:
                    yield record

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _completed(self, path: Path) -> Iterator[Line]:
        while data := self._files[path].read(_READ_BYTES):
            yield from self._lines[path].feed(data)

    def _event(self, path: Path, line: Line) -> h.Record:
        try:
            if line.cut:
                raise ValueError(f"longer than {_MOST_EVENT_BYTES} bytes")
            fields = msgspec.json.decode(line.data, type=dict)
            record = h.decode({**fields, "seq": 0, "t_seen": time.monotonic()})
            _check(path, record)
        except (ValueError, TypeError, RecursionError) as error:
            return _malformed(path, line.data[:1000].decode(errors="replace"), error)
        return record

    def _log_line(self, path: Path, line: Line) -> h.Record | None:
        text = line.data.decode(errors="replace")
        fields = self._patterns.parse(text) if self._patterns else None
        if fields is None:
            return None
        header = msgspec.to_builtins(own(h.Other, node=_node(path), name=fields["event"]))
        try:
            return h.decode({**header, **fields})
        except (ValueError, TypeError) as error:
            return _malformed(path, text, error)


def _check(path: Path, record: h.Record) -> None:
    """A trainer speaks for itself alone, of what has happened.

    Raises:
        ValueError: the record is the harness's, another process's, or from the future.
    """
    if record.event in h.HARNESS:
        raise ValueError(f"{record.event!r} is for the harness to say")
    who = (record.node, str(record.incarnation), str(record.rank), str(record.pid))
    named = tuple(path.name.removesuffix(".jsonl").rsplit(".", 3))
    if len(named) == len(who) and all(part.isdecimal() for part in named[1:]) and who != named:
        raise ValueError(f"{'.'.join(who)} speaks in the file of {'.'.join(named)}")
    if record.boot == boot_id() and record.t > record.t_seen:
        raise ValueError(f"t = {record.t} is {record.t - record.t_seen:.3g} s in the future")
    step = getattr(record, "step", 0)
    if not 0 <= step <= _MOST_STEPS:
        raise ValueError(f"step = {step} is no step")


def _malformed(path: Path, line: str, error: Exception) -> h.Record:
    return own(h.Malformed, node=_node(path), line=line[:200], reason=str(error))


def _node(path: Path) -> str:
    """Events files are ``<node>.<incarnation>.<rank>.<pid>.jsonl``, logs ``<node>.log``."""
    known = path.name.removesuffix(".log")
    return known if known != path.name else path.name.rsplit(".", 4)[0]
