"""No memory is left to a node: the kernel kills, and the rest of the node goes with it.

Imitates a pod that is over its limit, all of which is killed at once (memory.oom.group). It has had
its effect when the kernel has counted a kill, not when something was gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import OutOfMemory


async def inject(fault: OutOfMemory, names: Sequence[str], world: World) -> None:
    async def one(name: str) -> None:
        t = await world.isolated.exhaust(name)
        if t is not None:
            world.effect(name, "gone", t=t)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
