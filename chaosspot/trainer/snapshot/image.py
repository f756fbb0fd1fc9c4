"""The state as one range of bytes: what a snapshot's parts are cut from.

Flat tensors one behind the other, each at a multiple of 64 bytes: the three big ones, ballast,
the random state, the counters. Every parameter and moment has a name of its own in the table, so
that a file can be read without this program: little-endian values at ``start`` to ``stop``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import msgspec
import torch
from torch import Tensor

from chaosspot.trainer.snapshot.entries import Entry
from chaosspot.trainer.state import PARTS, TrainState

__all__ = ["Entry", "Layout", "layout_of"]

_ALIGNMENT_BYTES = 64
_NAMES = {torch.float32: "F32", torch.uint8: "U8", torch.int64: "I64"}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``entries``: every named tensor. ``flat``: the tensors of the state that they are in."""

    entries: dict[str, Entry]
    flat: dict[str, Entry]
    total_bytes: int
    """A multiple of 8."""

    def views(self, image: Tensor) -> dict[str, Tensor]:
        """The flat tensors as they lie in ``image``, (total_bytes,) uint8 on the host."""
        return {
            name: image[entry.start : entry.stop].view(_dtype(entry.dtype))
            for name, entry in self.flat.items()
        }


def _dtype(name: str) -> torch.dtype:
    return next(dtype for dtype, its in _NAMES.items() if its == name)


def layout_of(state: TrainState) -> Layout:
    """The layout of this state's image."""
    flat: dict[str, Entry] = {}
    entries: dict[str, Entry] = {}
    at = 0
    for name, tensor in state.tensors().items():
        at = -(-at // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        stop = at + tensor.numel() * tensor.element_size()
        dtype = _NAMES[tensor.dtype]
        flat[name] = Entry(dtype=dtype, shape=tuple(tensor.shape), start=at, stop=stop)
        if name in PARTS:
            entries |= _named(name, state, at, tensor.element_size())
        elif stop > at:
            entries[name] = flat[name]
        at = stop
    return Layout(entries=entries, flat=flat, total_bytes=-(-at // 8) * 8)


def _named(part: str, state: TrainState, at: int, element_bytes: int) -> Mapping[str, Entry]:
    found: dict[str, Entry] = {}
    for name, shape in state.layout:
        stop = at + prod(shape) * element_bytes
        found[f"{part}/{name}"] = Entry(dtype="F32", shape=shape, start=at, stop=stop)
        at = stop
    return found
