"""What a part of a snapshot consists of and belongs to: a small file, written last.

Two lines: the JSON text, and its own sum, so that no flipped bit of it is believed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from chaosspot.trainer.snapshot.direct import Sums, sum_text
from chaosspot.trainer.snapshot.entries import Entry
from chaosspot.trainer.snapshot.parts import Part, SnapshotId

if TYPE_CHECKING:
    from chaosspot.trainer.snapshot.image import Layout

__all__ = ["FORMAT", "Manifest", "ManifestError", "OtherJobError"]

FORMAT = "chaosspot-snapshot/2"
_FAMILY = "chaosspot-snapshot/"


class ManifestError(Exception):
    """A snapshot is not what its manifest says, or the manifest is none."""


class OtherJobError(ManifestError):
    """A snapshot is another job's: of other settings, data or model."""


class _Format(msgspec.Struct, frozen=True):
    format: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part: bytes ``start`` to ``start + sums.file_bytes`` of a state of ``total_bytes``."""

    format: str = FORMAT
    step: int
    generation: int
    index: int
    count: int
    job: str
    """The settings' and data's identity; a snapshot of another job is never loaded."""
    digest: str | None
    """The trainer's own digest of the whole state."""
    total_bytes: int
    start: int
    sums: Sums
    tensors: dict[str, Entry]
    """Where each tensor lies in the whole state."""

    @classmethod
    def of(
        cls, part: Part, layout: Layout, sums: Sums, *, job: str, digest: str | None
    ) -> Manifest:
        """The manifest of a part whose data has these sums."""
        return cls(
            step=part.of.step,
            generation=part.of.generation,
            index=part.index,
            count=part.of.count,
            job=job,
            digest=digest,
            total_bytes=layout.total_bytes,
            start=part.span(layout.total_bytes)[0],
            sums=sums,
            tensors=layout.entries,
        )

    @property
    def part(self) -> Part:
        return Part(SnapshotId(self.step, self.generation, self.count), self.index)

    def check(self, data: bytes | memoryview) -> None:
        """Compare the part's data with its sums.

        Raises:
            ManifestError: its length, or a block's sum, differs.
        """
        sums = self.sums
        if len(data) != sums.file_bytes:
            raise ManifestError(f"data has {len(data)} bytes, the manifest says {sums.file_bytes}")
        whole = np.frombuffer(data, np.uint8)
        for block, expected in enumerate(sums.blocks):
            start = block * sums.block_bytes
            found = sum_text(whole[start : start + sums.block_bytes])
            if found != expected:
                raise ManifestError(
                    f"data from byte {start} has sum {found}, the manifest says {expected}"
                )

    def encode(self) -> bytes:
        text = msgspec.json.encode(self)
        return text + b"\n" + _sum(text) + b"\n"

    @classmethod
    def decode(cls, data: bytes, *, part: Part | None = None, job: str | None = None) -> Manifest:
        """Read one.

        Args:
            part: what it has to be of; anything by default.
            job: whose it has to be; anybody's by default.

        Raises:
            ManifestError: damaged, of another format, of another part or job.
        """
        text, _, sum_ = data.removesuffix(b"\n").rpartition(b"\n")
        try:
            named = msgspec.json.decode(text or data, type=_Format).format
        except msgspec.MsgspecError as error:
            raise ManifestError(f"not a manifest: {error}") from error
        if named != FORMAT:
            newer = named.startswith(_FAMILY) and _version(named) > _version(FORMAT)
            hint = ": written by a newer version of chaosspot" if newer else ""
            raise ManifestError(f"format is {named!r}, expected {FORMAT!r}{hint}")
        if _sum(text) != sum_:
            raise ManifestError("damaged: the manifest is not what its own sum says")
        try:
            manifest = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ManifestError(f"not a manifest: {error}") from error
        if part is not None and manifest.part != part:
            raise ManifestError(f"is of part {manifest.index} of {manifest.part.of}, not {part}")
        if job is not None and manifest.job != job:
            raise OtherJobError(
                f"belongs to other settings or data: job {manifest.job!r}, this one is {job!r}"
            )
        return manifest


def _sum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def _version(name: str) -> int:
    text = name.removeprefix(_FAMILY)
    return int(text) if text.isdigit() else 0
