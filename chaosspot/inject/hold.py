"""One thread stays at a point while the process's other threads go on.

Imitates a process that hangs in a collective, a lock or a driver and still sends heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import Hold


async def inject(fault: Hold, names: Sequence[str], world: World) -> None:
    for name in names:
        world.effect(name, "held")
    await anyio.sleep(fault.duration_s)
