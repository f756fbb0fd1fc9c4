"""Times within a trace, as people say them."""

from __future__ import annotations

import math
import re

__all__ = ["seconds"]

_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, name: str) -> float:
    """``5400``, ``90m``, ``1.5h`` or ``2d`` in seconds; ``name`` is what an error calls it.

    Raises:
        ValueError: it is none of these, with the text.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None or not math.isfinite(found := float(match[1]) * _UNIT_S[match[2]]):
        raise ValueError(f"{name} {text!r}: a number of seconds, or one with m, h or d: 90m, 1.5h")
    return found
