"""A cloud's interruption notice, and the reclaim at its deadline.

The notice appears in the metadata service of each node. At the deadline, or earlier when the
schedule says so, the instance shuts down: SIGTERM to its processes, then SIGKILL. What spares the
node, or is withdrawn, is shown no more then, and the node stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import Notice


async def inject(fault: Notice, names: Sequence[str], world: World) -> None:
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(_reclaim, fault, name, world)


async def _reclaim(fault: Notice, name: str, world: World) -> None:
    action = world.metadata.sparing if fault.spares else None
    deadline_wall_s = world.metadata.publish(name, lead_s=fault.lead_s, action=action)
    world.effect(name, "published", deadline_wall_s=deadline_wall_s)
    world.in_force()
    left_s = max(0.0, deadline_wall_s - time.time())
    for sooner_s in (fault.kill_after_s, fault.withdraw_after_s):
        left_s = left_s if sooner_s is None else min(left_s, sooner_s)
    with anyio.move_on_after(left_s):
        gone = await world.cluster.gone(name)
        world.effect(name, "gone", t=gone.t)
        return
    if fault.spares or fault.withdraw_after_s is not None:
        world.metadata.withdraw(name)
        world.effect(name, "withdrawn")
        return
    ended = await world.cluster.terminate([name], grace_s=fault.shutdown_s)
    world.effect(name, "gone", t=ended[name].t)
