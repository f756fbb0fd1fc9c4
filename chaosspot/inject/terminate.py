"""SIGTERM with grace, then SIGKILL, as a scheduler or an orderly shutdown does it."""

from __future__ import annotations

from collections.abc import Sequence

from chaosspot.inject.world import World
from chaosspot.schedule import Terminate


async def inject(fault: Terminate, names: Sequence[str], world: World) -> None:
    gone = await world.cluster.terminate(
        names, grace_s=fault.grace_s, scope=fault.scope, sent=world.in_force
    )
    for name in names:
        world.effect(name, "gone", t=gone[name].t)
