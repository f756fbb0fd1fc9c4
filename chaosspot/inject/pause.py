"""SIGSTOP to a whole process tree, and SIGCONT: a node that freezes and comes back.

Imitates a live migration, a stalled hypervisor or a machine that swaps. Does not prove anything
about clocks: those of a paused process go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import Pause


async def inject(fault: Pause, names: Sequence[str], world: World) -> None:
    paused = await world.cluster.pause(names)
    try:
        for name, t in paused.items():
            world.effect(name, "paused", t=t)
        world.in_force()
        await anyio.sleep(fault.duration_s)
    finally:
        with anyio.CancelScope(shield=True):
            await world.cluster.resume(list(paused))
