"""Which snapshot all ranks go back to, and who reads which part: the same answer on every rank.

The ranks of a new membership tell each other, in one sum of integers, what step they are at and
what they could read. From the same table everyone draws the same conclusion, before anybody loads
anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chaosspot.trainer.snapshot.parts import Part, SnapshotId

__all__ = ["ROW", "Holdings", "Reading", "agree", "all_lost", "awaits", "read_table", "write_row"]

_ENTRIES = 40
_WIDTH = 5
_HEAD = 4
ROW = _HEAD + _ENTRIES * _WIDTH
"""Integers in which a rank says what it holds."""

_FLASH, _STORE, _BAD = 1, 2, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Holdings:
    """What one rank could read, and at which step its memory is."""

    step: int
    tired: bool = False
    """It has waited long enough for the disks of peers that may be coming back."""
    flash: frozenset[Part] = frozenset()
    """Parts on its own disk."""
    store: frozenset[SnapshotId] = frozenset()
    """Complete snapshots that it saw in the store."""
    bad: frozenset[Part] = frozenset()
    """Parts of the store that it could not read, or found damaged."""
    blind: bool = False
    """The store did not say what it has."""
    rejected: int = 0
    """Parts and snapshots that it found damaged, wherever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What is to be restored, and how."""

    snapshot: SnapshotId
    flash: dict[int, int] = field(default_factory=dict)
    """Rank that reads the part from its flash, by index."""
    store: dict[int, int] = field(default_factory=dict)
    """Rank that reads the part from the store, by index; no part is in both."""


def write_row(holdings: Holdings) -> list[int]:
    """A rank's row of the table: the newest of what it holds, as far as there is room."""
    entries = [(_BAD, part.of, part.index) for part in sorted(holdings.bad, reverse=True)]
    held = [(_FLASH, part.of, part.index) for part in holdings.flash]
    held += [(_STORE, snapshot, 0) for snapshot in holdings.store]
    entries += sorted(held, key=lambda entry: entry[1], reverse=True)
    row = [holdings.step, int(holdings.tired), int(holdings.blind), holdings.rejected]
    for kind, of, index in entries[:_ENTRIES]:
        row += [kind, of.step, of.generation, of.count, index]
    return row + [0] * (ROW - len(row))


def read_table(rows: Sequence[Sequence[int]]) -> list[Holdings]:
    """What each rank holds, by rank."""
    return [_read_row(row) for row in rows]


def _read_row(row: Sequence[int]) -> Holdings:
    parts: dict[int, list[Part]] = {_FLASH: [], _STORE: [], _BAD: []}
    for at in range(_HEAD, ROW, _WIDTH):
        kind, step, generation, count, index = row[at : at + _WIDTH]
        if kind:
            parts[kind].append(Part(SnapshotId(step, generation, count), index))
    return Holdings(
        step=row[0],
        tired=bool(row[1]),
        blind=bool(row[2]),
        rejected=row[3],
        flash=frozenset(parts[_FLASH]),
        store=frozenset(part.of for part in parts[_STORE]),
        bad=frozenset(parts[_BAD]),
    )


def agree(table: Sequence[Holdings]) -> Reading | None:
    """The newest snapshot beyond every rank's memory whose parts can all be read; None for none.

    All states of one job lie on one trajectory, so that what is newest is right, wherever it is.
    A part is read from the flash of the first rank that has it, else from the store, where the
    ranks that see it take turns.
    """
    memory = max((held.step for held in table), default=0)
    for snapshot in sorted(_known(table), reverse=True):
        if snapshot.step > memory and (reading := _reading(table, snapshot)) is not None:
            return reading
    return None


def awaits(table: Sequence[Holdings], reading: Reading | None) -> bool:
    """Whether to wait for peers before going on from ``reading``: they may be coming back with the
    rest of a newer snapshot on their disks.

    Only when nobody's memory holds the state, and not for long: their nodes may be gone. But a
    store that does not say what it has is waited for as long as it takes.
    """
    if any(held.step for held in table):
        return False
    if any(held.blind for held in table):
        return True
    newest = reading.snapshot.step if reading is not None else 0
    hope = any(part.of.step > newest for held in table for part in held.flash)
    return hope and not any(held.tired for held in table)


def all_lost(table: Sequence[Holdings], reading: Reading | None) -> bool:
    """Whether there were snapshots, and none of them can be read: no reason to begin anew."""
    return (
        reading is None
        and not any(held.step for held in table)
        and any(held.rejected for held in table)
    )


def _known(table: Iterable[Holdings]) -> set[SnapshotId]:
    return {
        snapshot for held in table for snapshot in (*held.store, *(part.of for part in held.flash))
    }


def _reading(table: Sequence[Holdings], snapshot: SnapshotId) -> Reading | None:
    reading = Reading(snapshot=snapshot)
    bad = {part for held in table for part in held.bad}
    seeing = [rank for rank, held in enumerate(table) if snapshot in held.store]
    for part in snapshot.parts():
        having = next((rank for rank, held in enumerate(table) if part in held.flash), None)
        if having is not None:
            reading.flash[part.index] = having
        elif seeing and part not in bad:
            reading.store[part.index] = seeing[part.index % len(seeing)]
        else:
            return None
    return reading
