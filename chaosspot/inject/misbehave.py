"""The metadata service of some nodes misbehaves for a while.

It has had an effect on a node one of whose requests it struck, or who could not ask.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio
from msgspec.structs import replace

from chaosspot.inject.world import World
from chaosspot.misbehaviour import Closed
from chaosspot.schedule import Misbehave


async def inject(fault: Misbehave, names: Sequence[str], world: World) -> None:
    since_t = time.monotonic()
    numbers = [world.metadata.misbehave(replace(fault.how, nodes=name)) for name in names]
    try:
        world.in_force()
        await anyio.sleep(fault.duration_s)
        there = set(world.metadata.nodes())
        for name, number in zip(names, numbers, strict=True):
            away = name not in there or isinstance(fault.how, Closed)
            if away or world.metadata.struck(name, number):
                world.effect(name, "misbehaved", t=since_t)
    finally:
        with anyio.CancelScope(shield=True):
            for number in numbers:
                await world.metadata.behave(number)
