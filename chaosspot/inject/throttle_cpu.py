"""Nodes that get little of the processors: stragglers.

Imitates a noisy neighbour, a throttled burstable instance, a machine that is too hot. It has had
an effect on a node that the kernel has held back.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import ThrottleCpu

_LOOK_S = 0.1


async def inject(fault: ThrottleCpu, names: Sequence[str], world: World) -> None:
    told: set[str] = set()
    try:
        await world.isolated.throttle(names, cpus=fault.cpus)
        world.in_force()
        with anyio.move_on_after(fault.duration_s):
            while True:
                for name, t in (await world.isolated.throttled(names)).items():
                    if name not in told:
                        told.add(name)
                        world.effect(name, "throttled", t=t)
                await anyio.sleep(_LOOK_S)
    finally:
        with anyio.CancelScope(shield=True):
            await world.isolated.unthrottle(names)
