"""The run's object store misbehaves for a while.

It has had an effect on a node when a request of its was struck; the store tells of that itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import ObjectStore


async def inject(fault: ObjectStore, _names: Sequence[str], world: World) -> None:
    number = world.misbehave_store(fault.how)
    try:
        world.in_force()
        await anyio.sleep(fault.duration_s)
    finally:
        world.behave_store(number)
