"""A count at every tick, as JSON."""

from __future__ import annotations

import msgspec
import numpy as np

from chaosspot.traces.trace import Array, Counts, TraceError, whole

__all__ = ["read"]


class _Metadata(msgspec.Struct, frozen=True):
    gap_seconds: float


class _File(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: list[int]


def read(text: str, name: str) -> tuple[Array, Counts, float]:
    """Times, counts and the end; each count holds for one gap.

    Raises:
        TraceError: it is not what it should be; the message says where.
    """
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise TraceError(f"{name}: not a series of counts: {error}") from error
    gap_s = file.metadata.gap_seconds
    if not 0 < gap_s < float("inf"):
        raise TraceError(f"{name}: gap_seconds = {gap_s!r}: above 0")
    if not file.data:
        raise TraceError(f"{name}: the trace is empty")
    found = whole(file.data, name)
    times_s: Array = np.arange(len(found), dtype=np.float64) * gap_s
    return times_s, found, len(found) * gap_s
