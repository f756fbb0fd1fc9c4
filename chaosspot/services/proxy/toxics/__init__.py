"""What can go wrong on a link, one kind a file."""

from __future__ import annotations

from chaosspot.services.proxy.toxics import (
    bandwidth,
    corrupt,
    half_close,
    latency,
    limit_data,
    noop,
    refuse,
    reset_now,
    reset_peer,
    slicer,
    slow_close,
    timeout,
)
from chaosspot.services.proxy.toxics.pipe import Attributes, Kind

__all__ = ["KINDS", "Attributes", "Kind"]

_MODULES = (
    latency,
    bandwidth,
    slow_close,
    timeout,
    reset_peer,
    slicer,
    limit_data,
    noop,
    reset_now,
    half_close,
    corrupt,
    refuse,
)
KINDS: dict[str, Kind] = {module.KIND.name: module.KIND for module in _MODULES}
