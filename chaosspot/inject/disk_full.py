"""No space left on a node's flash, for a while.

Imitates logs or other tenants filling a local disk. The flash is a file system of its own, so that
what the trainer meets is the kernel's ENOSPC, in whatever call it makes.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import DiskFull


async def inject(fault: DiskFull, names: Sequence[str], world: World) -> None:
    try:
        for name in names:
            await world.cluster.fill_flash(name)
            world.effect(name, "full")
        await anyio.sleep(fault.duration_s)
    finally:
        with anyio.CancelScope(shield=True):
            for name in names:
                await world.cluster.free_flash(name)
