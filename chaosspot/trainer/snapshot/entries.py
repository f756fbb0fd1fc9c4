"""Where one tensor lies in a state's bytes; known without torch, to whoever reads a manifest."""

from __future__ import annotations

import msgspec

__all__ = ["Entry"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one tensor is: ``dtype`` as safetensors names it, bytes ``start`` to ``stop``."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
