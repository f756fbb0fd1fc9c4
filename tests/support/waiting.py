"""Waiting for what has no event to await."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio


async def until(condition: Callable[[], object], within_s: float = 15.0) -> float:
    """Poll until true; returns how long it took, in seconds."""
    began = time.monotonic()
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - /proc and files have no events
            await anyio.sleep(0.005)
    return time.monotonic() - began
