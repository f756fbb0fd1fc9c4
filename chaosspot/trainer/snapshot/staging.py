"""A preallocated host copy of the state: what a snapshot is written from while training goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.state import PARTS, TrainState

__all__ = ["Staged", "read_state"]


class Staged:
    """One buffer, reused: page faults of a fresh one cost more than the copy itself.

    The file it turns into is safetensors with every parameter and moment under its own name; in
    the buffer, as in the state, they lie one behind the other.
    """

    def __init__(self, state: TrainState) -> None:
        pin = state.gradient.device.type == "cuda"
        self._parts = {
            name: torch.zeros(state.n, dtype=torch.float32, pin_memory=pin) for name in PARTS
        }
        self._random_state = state.random_state()
        self._header = _safetensors_header(state)
        self.step = -1
        self.updates = 0

    def copy(self, state: TrainState) -> None:
        """Copy the state; afterwards it may change."""
        for name, part in state.parts().items():
            self._parts[name].copy_(part)
        self._random_state.copy_(state.random_state())
        saved = state.state_dict()
        assert isinstance(saved["updates"], int)
        self.step, self.updates = state.step, saved["updates"]

    def chunks(self) -> Iterator[memoryview]:
        """The bytes of the file, in a few large pieces that alias the buffer."""
        yield memoryview(self._header)
        for tensor in (*self._parts.values(), self._random_state):
            yield tensor.numpy().data.cast("B")

    @property
    def data_bytes(self) -> int:
        """Length of the file."""
        return sum(len(chunk) for chunk in self.chunks())

    def manifest(self, *, world: int, generation: int, job: str, digest: str | None) -> Manifest:
        """The manifest of the copied state; hashes it."""
        data_sum = hashlib.blake2b(digest_size=16)
        for chunk in self.chunks():
            data_sum.update(chunk)
        return Manifest(
            step=self.step,
            world=world,
            generation=generation,
            job=job,
            digest=digest,
            updates=self.updates,
            data_bytes=self.data_bytes,
            blake2b=data_sum.hexdigest(),
        )


def _safetensors_header(state: TrainState) -> bytes:
    """Length (8 bytes, little endian) and JSON, padded with spaces so that the data is aligned."""
    entries: dict[str, object] = {}
    start = 0
    for part in PARTS:
        for name, shape in state.layout:
            end = start + 4 * torch.Size(shape).numel()
            entries[f"{part}/{name}"] = {
                "dtype": "F32", "shape": list(shape), "data_offsets": [start, end],
            }  # fmt: skip
            start = end
    size = state.random_state().numel()
    entries["random_state"] = {
        "dtype": "U8", "shape": [size], "data_offsets": [start, start + size],
    }  # fmt: skip
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_state(data: bytes, manifest: Manifest, state: TrainState) -> None:
    """Load a snapshot's file into ``state``.

    Raises:
        KeyError, ValueError, TrainerError: it holds another model's state, or no tensors at all.
    """
    try:
        tensors = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from error
    saved: dict[str, Tensor | int] = {
        part: torch.cat([tensors[f"{part}/{name}"].flatten() for name, _ in state.layout])
        for part in PARTS
    }
    saved |= {
        "random_state": tensors["random_state"],
        "updates": manifest.updates,
        "step": manifest.step,
    }
    state.load_state_dict(saved)
