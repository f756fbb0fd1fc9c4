"""Nodes by name, added and removed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from chaosspot.traces.trace import Array, Counts, TraceError

__all__ = ["read", "read_segments"]

Event = tuple[float, str, str]  # seconds, add or remove, node
Read = tuple[Array, Counts, Counts, float]


def read(text: str, name: str) -> Read:
    """Times, counts, losses and the end, which is the last event; the first one is the start.

    Raises:
        TraceError: a line is no event, times go back, or a node is added or removed twice.
    """
    return _checked(list(_rows(text, name)), name)


def read_segments(text: str, name: str) -> Read:
    """The same for lines of JSON; the last line that has a time ends it.

    Raises:
        TraceError: as for :func:`read`.
    """
    return _checked(list(_segments(text, name)), name)


def _rows(text: str, name: str) -> Iterator[tuple[int, Event | float]]:
    rows = csv.reader(text.splitlines())  # some copies end lines with a carriage return
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            time_ms, what, node = (part.strip() for part in row)
            event = (int(time_ms) / 1000, what, node)
        except (ValueError, OverflowError) as error:
            raise TraceError(f"{name}:{number}: {','.join(row)!r} is no event") from error
        if what not in ("add", "remove"):
            raise TraceError(f"{name}:{number}: {what!r} is neither add nor remove")
        yield number, event


def _segments(text: str, name: str) -> Iterator[tuple[int, Event | float]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            time_ms, what, *rest = msgspec.json.decode(line, type=list[object])
            if not isinstance(time_ms, int | float) or not isinstance(what, str):
                raise ValueError(line)
            nodes = msgspec.convert(rest[0], _Nodes).nodes if rest else []
        except (ValueError, msgspec.DecodeError) as error:
            raise TraceError(f"{name}:{number}: {line[:80]!r} is no segment line") from error
        yield number, time_ms / 1000
        if what in ("add", "remove"):
            for node in nodes:
                yield number, (time_ms / 1000, what, node)


class _Nodes(msgspec.Struct, frozen=True):
    nodes: list[str] = []


def _checked(entries: list[tuple[int, Event | float]], name: str) -> Read:
    """Read them; what would make sense the other way round is told so."""
    try:
        return _replay(entries, name)
    except _PresenceError as error:
        try:
            _replay([(n, e if isinstance(e, float) else _turned(e)) for n, e in entries], name)
        except TraceError:
            raise error from None
        raise TraceError(
            f"{error}; all would make sense the other way round: add and remove are swapped"
        ) from None


class _PresenceError(TraceError):
    """A node comes that is there, or goes that is not."""


def _turned(event: Event) -> Event:
    time_s, what, node = event
    return time_s, "remove" if what == "add" else "add", node


def _replay(entries: Iterable[tuple[int, Event | float]], name: str) -> Read:
    live: set[str] = set()
    counts: dict[float, int] = {}
    lost: dict[float, int] = {}
    last_s = 0.0
    for number, entry in entries:
        time_s = entry if isinstance(entry, float) else entry[0]
        if time_s < last_s:
            raise TraceError(f"{name}:{number}: the time {time_s} s goes back")
        last_s = time_s
        if not isinstance(entry, float):
            _, what, node = entry
            if (node in live) == (what == "add"):
                there = "already there" if what == "add" else "not there"
                raise _PresenceError(f"{name}:{number}: {what} of {node!r}, which is {there}")
            live ^= {node}
            lost[time_s] = lost.get(time_s, 0) + (what == "remove")
        counts[time_s] = len(live)
    if len(counts) < 2:
        raise TraceError(f"{name}: has one point in time only: nothing was observed")
    times_s = np.array(list(counts), dtype=np.float64)
    found = np.array(list(counts.values()), dtype=np.int64)
    gone = np.array([lost.get(time, 0) for time in counts], dtype=np.int64)
    return times_s - times_s[0], found, gone, float(times_s[-1] - times_s[0])
