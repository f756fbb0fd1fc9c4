"""Records that the harness makes itself, stamped with its own clocks."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from chaosspot.history import Record
from chaosspot.probe import boot_id

__all__ = ["own"]

R = TypeVar("R", bound=Record)


def own(kind: type[R], /, *, node: str = "", t: float | None = None, **fields: Any) -> R:
    """A record of ``kind`` about ``node``; ``t`` is monotonic seconds, now if absent."""
    now = time.monotonic()
    header: dict[str, Any] = {
        "seq": 0,
        "t": now if t is None else t,
        "t_seen": now,
        "wall": time.time(),
        "boot": boot_id(),
        "node": node,
        "rank": 0,
        "incarnation": 0,
        "pid": 0,
    }
    return kind(**header, **fields)
