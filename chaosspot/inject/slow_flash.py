"""A node's flash that writes slowly, as a drive that is worn, shared or throttled by its host.

It has had an effect on a node that wrote something under the limit, by the kernel's own count.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import SlowFlash


async def inject(fault: SlowFlash, names: Sequence[str], world: World) -> None:
    slowed: dict[str, float] = {}
    try:
        for name in names:
            t = await world.cluster.slow_flash(name, fault.write_bytes_per_s)
            if t is not None:
                slowed[name] = t
        world.in_force()
        await anyio.sleep(fault.duration_s)
    finally:
        with anyio.CancelScope(shield=True):
            for name, t in slowed.items():
                if await world.cluster.mend_flash(name):
                    world.effect(name, "slowed", t=t)
