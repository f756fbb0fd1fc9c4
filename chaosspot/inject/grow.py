"""More nodes join a running job, as when spot capacity comes back."""

from __future__ import annotations

from collections.abc import Sequence

from chaosspot.inject.world import World
from chaosspot.schedule import Grow


async def inject(fault: Grow, names: Sequence[str], world: World) -> None:
    for name in await world.grow(fault.count):
        world.effect(name, "up")
