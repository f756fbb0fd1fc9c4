"""The one record of everything that happened: the trainer's events and the harness's.

Each process of a trainer writes its own file (:mod:`chaosspot.probe`); the conductor alone merges
them with its own records into ``history.jsonl``, one JSON object a line, in the order seen.
Oracles read it in the order things happened.

Every record has ``seq`` (line number of the merged file, from 0), ``t`` (seconds on the source's
monotonic clock), ``t_seen`` (the same on the conductor's clock, when it read the line), ``wall``
(Unix seconds), ``boot`` (the source's boot id), ``node``, ``rank``, ``incarnation``, ``pid`` and
``event``. Keys beyond an event's own are kept in ``extra``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import msgspec

__all__ = [
    "EVENTS",
    "HARNESS",
    "Effect",
    "Record",
    "Writer",
    "decode",
    "encode",
    "ordered",
    "parse",
    "read",
]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every line has."""

    event: ClassVar[str] = ""
    seq: int
    t: float
    t_seen: float
    wall: float
    boot: str
    node: str
    rank: int
    incarnation: int
    pid: int
    extra: dict[str, Any] = {}


# What a trainer reports.


class Begin(Record, frozen=True, kw_only=True):
    """An attempt at a step starts: ``step`` is the one it would complete.

    ``generation`` tells attempts at one step apart: it grows with every change of membership and
    every repeat.
    """

    event = "begin"
    step: int
    generation: int | None = None
    world: int = 0


class Commit(Record, frozen=True, kw_only=True):
    """The state is now the state after ``step`` updates.

    ``digest`` covers it, ``parent`` is the digest before; ``samples`` holds how often each
    micro-shard of the step was applied. ``busy_s``: seconds that the process computed for the
    step itself, before it waited for others.
    """

    event = "commit"
    step: int
    generation: int | None = None
    world: int = 0
    loss: float | None = None
    digest: str | None = None
    parent: str | None = None
    samples: tuple[int, ...] | None = None
    busy_s: float | None = None


class Snapshot(Record, frozen=True, kw_only=True):
    """``objects``: the keys that make it up in the store, from the start of the store's place."""

    event = "snapshot"
    step: int
    stage: Literal["staged", "local", "durable"]
    bytes: int = 0
    shards: int = 1
    objects: tuple[str, ...] | None = None


class NoticeSeen(Record, frozen=True, kw_only=True):
    event = "notice"
    provider: str = ""
    action: str = ""
    deadline_wall_s: float | None = None


class Drain(Record, frozen=True, kw_only=True):
    event = "drain"
    step: int = 0
    generation: int = 0
    world: int = 0


class Join(Record, frozen=True, kw_only=True):
    event = "join"
    step: int = 0
    generation: int = 0
    world: int = 0


class Leave(Record, frozen=True, kw_only=True):
    event = "leave"
    step: int = 0
    generation: int = 0
    world: int = 0


class Restore(Record, frozen=True, kw_only=True):
    event = "restore"
    step: int
    source: Literal["peer", "local", "store"]


class Exit(Record, frozen=True, kw_only=True):
    event = "exit"
    reason: str = ""


class SoftError(Record, frozen=True, kw_only=True):
    """Something failed that training goes on without, such as an upload."""

    event = "soft-error"
    what: str
    error: str = ""
    step: int | None = None


class Point(Record, frozen=True, kw_only=True):
    """An armed point was reached."""

    event = "point"
    name: str


# What the harness records.


class RunStart(Record, frozen=True, kw_only=True):
    event = "run.start"
    schedule: str
    trainer: str
    seed: int


class Proxied(Record, frozen=True, kw_only=True):
    """What the links that faults impair go through, with its version."""

    event = "run.proxy"
    server: str
    links: tuple[str, ...]


class NodeUp(Record, frozen=True, kw_only=True):
    """A node's process tree was started; ``replaces`` names the node it stands in for."""

    event = "node.up"
    zone: str
    family: str
    pool: str
    role: str
    replaces: str | None = None


class NodeRestart(Record, frozen=True, kw_only=True):
    """A node's trainer ended with an error and is started again, on the same flash."""

    event = "node.restart"
    code: int


class NodeGone(Record, frozen=True, kw_only=True):
    """Nothing of a node's tree lives any more.

    ``by_itself``: it ended before anything of ours touched it. ``code`` is the exit code of its
    first main process that failed, else 0; negative for a signal.
    """

    event = "node.gone"
    by_itself: bool
    code: int | None = None


Effect = Literal[
    "gone",
    "published",
    "withdrawn",
    "paused",
    "slowed",
    "held",
    "child-gone",
    "full",
    "up",
    "misbehaved",
    "impaired",
    "cut-off",
    "throttled",
    "nameless",
]


class FaultInjected(Record, frozen=True, kw_only=True):
    event = "fault.injected"
    fault: int
    kind: str
    nodes: tuple[str, ...]
    step: int = 0


class FaultEffect(Record, frozen=True, kw_only=True):
    """What the harness saw a fault do to ``node``.

    Its tree ``gone``; its notice ``published`` or ``withdrawn``; all its processes ``paused``, or
    ``slowed`` by pauses; one thread ``held`` at a point; one of its processes ``child-gone``; its
    flash ``full``, or ``slowed`` while it wrote; itself ``up``, as a node that the fault added; its
    metadata service or the store ``misbehaved`` towards it; what it sent or was sent over a link
    ``impaired``; itself ``cut-off`` from others, ``throttled`` by the kernel, or ``nameless``:
    without an answer when it asks for a name.
    """

    event = "fault.effect"
    fault: int
    what: Effect
    deadline_wall_s: float | None = None


class FaultHealed(Record, frozen=True, kw_only=True):
    event = "fault.healed"
    fault: int


class FaultMissed(Record, frozen=True, kw_only=True):
    """A fault did not act: its trigger never came, or it hit nothing.

    ``drawn``: that it hits nothing is what its draw said.
    """

    event = "fault.missed"
    fault: int
    reason: str
    drawn: bool = False


class StorePut(Record, frozen=True, kw_only=True):
    """From now on the store holds this under ``key``: a whole object, however it was sent.

    ``sum`` is of its bytes. ``node`` is who sent it, empty where that is not known.
    """

    event = "store.put"
    key: str
    bytes: int
    sum: str


class StoreDelete(Record, frozen=True, kw_only=True):
    """From now on the store holds nothing under ``key``."""

    event = "store.delete"
    key: str


class StoreUpload(Record, frozen=True, kw_only=True):
    """An upload in parts began, or ended with an object or without one."""

    event = "store.upload"
    key: str
    upload: str
    state: Literal["begun", "completed", "aborted"]


class StoreMisbehaved(Record, frozen=True, kw_only=True):
    """The store did as a fault told it, to one request of ``node``."""

    event = "store.misbehaved"
    fault: int
    kind: str
    operation: str
    key: str


class StoreFound(Record, frozen=True, kw_only=True):
    """What the harness read in the store itself at the end, past all that may misbehave.

    ``objects``: the sums by key. ``uploads``: the uploads in parts that had not ended.
    """

    event = "store.found"
    objects: dict[str, str]
    uploads: tuple[str, ...] = ()


class Malformed(Record, frozen=True, kw_only=True):
    """A line of a trainer that is no event."""

    event = "malformed"
    line: str
    reason: str


class Leak(Record, frozen=True, kw_only=True):
    """Something of the run that outlived it."""

    event = "leak"
    what: str


class RunStop(Record, frozen=True, kw_only=True):
    """Why the run ended; ``log`` holds the last lines of the node that explains it."""

    event = "run.stop"
    reason: str
    log: str = ""


class Other(Record, frozen=True, kw_only=True):
    """An event of the trainer's own; ``name`` is its name, ``extra`` its fields."""

    name: str


EVENTS: Mapping[str, type[Record]] = {
    kind.event: kind for kind in Record.__subclasses__() if kind is not Other
}
_HEADER = frozenset(Record.__struct_fields__) - {"extra"}


def encode(record: Record) -> bytes:
    """One line, with its newline."""
    fields = msgspec.to_builtins(record)
    extra = fields.pop("extra", {})
    name = fields.pop("name") if isinstance(record, Other) else record.event
    return msgspec.json.encode({"event": name, **fields, **extra}) + b"\n"


def decode(fields: Mapping[str, Any]) -> Record:
    """The record that a decoded line means.

    Raises:
        ValueError: a field is missing or has the wrong type.
    """
    given = dict(fields)
    name = given.pop("event", None)
    if not isinstance(name, str):
        raise ValueError(f"event = {name!r} is no name")
    kind = EVENTS.get(name, Other)
    known = {key: given.pop(key) for key in kind.__struct_fields__ if key in given}
    if kind is Other:
        given.update({key: known.pop(key) for key in set(known) - _HEADER})
        known["name"] = name
    return msgspec.convert({**known, "extra": given}, kind)


class Writer:
    """Appends records to ``history.jsonl`` and numbers them; there is one in a run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._seq = 0

    def append(self, record: Record) -> Record:
        """Write ``record`` with the next number; returns it with that number.

        Raises:
            OSError: with the path, when it cannot be written.
        """
        numbered = msgspec.structs.replace(record, seq=self._seq)
        line = encode(numbered)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._seq += 1
        return numbered

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> tuple[Record, ...]:
    """All records of a history file; see :func:`parse`."""
    return parse(path.read_bytes(), origin=str(path))


def parse(data: bytes, *, origin: str = "history") -> tuple[Record, ...]:
    """All records in the order things happened; a torn last line is left out.

    Raises:
        ValueError: a line that is not the last is no record; the message names it.
    """
    complete = data.split(b"\n")[:-1]  # what follows the last newline is empty or torn
    records = []
    for number, line in enumerate(complete, 1):
        try:
            records.append(decode(msgspec.json.decode(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{origin}:{number}: {error}") from error
    return ordered(records)


def ordered(records: Iterable[Record]) -> tuple[Record, ...]:
    """The order in which things happened.

    Records of the harness's own boot share its clock and go by source time; those of other
    machines go by the time they were seen, which keeps each process's own order.
    """
    listed = sorted(records, key=lambda record: record.seq)
    here = next((record.boot for record in listed if record.event in HARNESS), None)
    return tuple(sorted(listed, key=lambda r: (r.t if r.boot == here else r.t_seen, r.seq)))


HARNESS = frozenset(name for name in EVENTS if "." in name)
