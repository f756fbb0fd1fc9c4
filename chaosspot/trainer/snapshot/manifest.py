"""The layout of a snapshot, on flash and in the store.

``step-0000000040/state.safetensors``, and beside it ``manifest.json``, which is written last:
without it there is no snapshot.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

__all__ = [
    "FORMAT",
    "Manifest",
    "ManifestError",
    "complete_steps",
    "data_key",
    "manifest_key",
    "step_of",
]

FORMAT = "chaosspot-snapshot/1"
_MANIFEST = re.compile(r"step-(\d{10})/manifest\.json")


class ManifestError(Exception):
    """A snapshot is not what its manifest says, or the manifest is none."""


def data_key(step: int) -> str:
    """Where the tensors of that step's snapshot are, relative to flash or store."""
    return f"step-{step:010d}/state.safetensors"


def manifest_key(step: int) -> str:
    """Where that step's manifest is, relative to flash or store."""
    return f"step-{step:010d}/manifest.json"


def step_of(key: str) -> int | None:
    """The step whose snapshot the key belongs to; None for what is none of ours."""
    match = re.match(r"step-(\d{10})/", key)
    return int(match[1]) if match else None


def complete_steps(keys: Iterable[str]) -> list[int]:
    """Steps whose manifest is among ``keys``, in ascending order."""
    found = (_MANIFEST.fullmatch(key) for key in keys)
    return sorted(int(match[1]) for match in found if match)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a snapshot consists of and belongs to."""

    step: int
    world: int
    generation: int
    job: str
    """The settings' and data's identity; a snapshot of another job is never loaded."""
    digest: str | None
    """The trainer's own digest of the state."""
    updates: int
    data_bytes: int
    """Length of the data file."""
    blake2b: str
    """Sum of the data file, 32 hex digits."""
    format: str = FORMAT

    def encode(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, text: bytes, *, job: str) -> Manifest:
        """Read one.

        Raises:
            ManifestError: damaged, of another format, or of another job than ``job``.
        """
        try:
            manifest = cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ManifestError(f"not a manifest: {error}") from error
        if manifest.format != FORMAT:
            raise ManifestError(f"format is {manifest.format!r}, expected {FORMAT!r}")
        if manifest.job != job:
            raise ManifestError(
                f"belongs to other settings or data: job {manifest.job!r}, this one is {job!r}"
            )
        return manifest

    def check(self, data: bytes | bytearray | memoryview) -> None:
        """Compare the data with the sums.

        Raises:
            ManifestError: length or sum differs.
        """
        if len(data) != self.data_bytes:
            raise ManifestError(f"data has {len(data)} bytes, the manifest says {self.data_bytes}")
        found = hashlib.blake2b(data, digest_size=16).hexdigest()
        if found != self.blake2b:
            raise ManifestError(f"data has sum {found}, the manifest says {self.blake2b}")
