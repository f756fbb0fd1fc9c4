"""No space left on a node's flash, for a while.

Imitates logs or other tenants filling a local disk. The flash is a file system of its own, so that
what the trainer meets is the kernel's ENOSPC, in whatever call it makes.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import DiskFull

_AGAIN_S = 0.1  # what the trainer frees is taken as well, as by a log that goes on growing


async def inject(fault: DiskFull, names: Sequence[str], world: World) -> None:
    full: set[str] = set()
    try:
        with anyio.move_on_after(fault.duration_s):
            while True:
                for name in names:
                    t = await world.cluster.fill_flash(name)
                    if t is not None and name not in full:
                        full.add(name)
                        world.effect(name, "full", t=t)
                world.in_force()
                await anyio.sleep(_AGAIN_S)
    finally:
        with anyio.CancelScope(shield=True):
            for name in names:
                await world.cluster.free_flash(name)
