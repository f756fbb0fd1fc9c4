"""Which files make up a snapshot: pure functions over keys.

A snapshot is cut into as many *parts* as ranks wrote it, each a range of the state's bytes::

    step-0000000040/generation-0000000007/part-0003-of-0008/state.bin
    step-0000000040/generation-0000000007/part-0003-of-0008/manifest.json

A part exists once its manifest does, a snapshot once all of its parts do. The generation in the
name is the fence: a node that was replaced, and does not know it, writes under an older one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ALIGN_BYTES", "Part", "SnapshotId", "complete", "parts_in"]

ALIGN_BYTES = 4096
"""Parts begin at multiples of this, as do the address, offset and length of direct I/O: enough for
every drive."""

_FOLDER = re.compile(r"step-(\d{10})/generation-(\d{10})/part-(\d{4})-of-(\d{4})/")


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """One snapshot; the later in order, the newer."""

    step: int
    generation: int
    count: int
    """Parts it is cut into."""

    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(self, index) for index in range(self.count))

    def __str__(self) -> str:
        parts = "1 part" if self.count == 1 else f"{self.count} parts"
        return f"step {self.step}, generation {self.generation}, in {parts}"


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """The ``index``-th part of a snapshot, from 0."""

    of: SnapshotId
    index: int

    @property
    def folder(self) -> str:
        """Where it lies, relative to flash or store; ends with a slash."""
        of = self.of
        return (
            f"step-{of.step:010d}/generation-{of.generation:010d}/"
            f"part-{self.index:04d}-of-{of.count:04d}/"
        )

    @property
    def data_key(self) -> str:
        return f"{self.folder}state.bin"

    @property
    def manifest_key(self) -> str:
        return f"{self.folder}manifest.json"

    def span(self, total_bytes: int) -> tuple[int, int]:
        """First byte and end of this part of ``total_bytes``; parts differ by one block at most.

        With more parts than blocks of 4,096 bytes some are empty.
        """
        blocks = -(-total_bytes // ALIGN_BYTES)
        start, end = (blocks * at // self.of.count for at in (self.index, self.index + 1))
        return min(start * ALIGN_BYTES, total_bytes), min(end * ALIGN_BYTES, total_bytes)

    @classmethod
    def of_key(cls, key: str) -> Part | None:
        """The part that a key belongs to; None for what is none of ours."""
        match = _FOLDER.match(key)
        if match is None:
            return None
        step, generation, index, count = map(int, match.groups())
        return cls(SnapshotId(step, generation, count), index) if index < count else None


def parts_in(keys: Iterable[str]) -> list[Part]:
    """The parts whose manifests are among ``keys``, in order."""
    found = {part for key in keys if (part := Part.of_key(key)) and key == part.manifest_key}
    return sorted(found)


def complete(keys: Iterable[str]) -> list[SnapshotId]:
    """The snapshots of which every part's manifest is among ``keys``, the newest last."""
    indices: dict[SnapshotId, int] = defaultdict(int)
    for part in parts_in(keys):
        indices[part.of] += 1
    return sorted(snapshot for snapshot, parts in indices.items() if parts == snapshot.count)
