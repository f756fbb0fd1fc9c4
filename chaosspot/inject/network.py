"""A link of some nodes is bad for a while: toxics on the proxies that it goes through.

It has had an effect on a node when one of them had something to do on a connection of its; where
nothing can pass, when it has a connection at all. Or when it was gone before either.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import Network


async def inject(fault: Network, names: Sequence[str], world: World) -> None:
    since_t = time.monotonic()
    everyone = fault.target is None
    number = await world.links.impair(fault.link, None if everyone else names, fault.toxic)
    try:
        world.in_force()
        await anyio.sleep(fault.duration_s)
    finally:
        with anyio.CancelScope(shield=True):
            struck = await world.links.struck(number, cuts=fault.cuts)
            alive = {node.name for node in world.cluster.alive()}
            gone = [name for name in names if name not in alive]
            for name in dict.fromkeys([*struck, *gone]):
                world.effect(name, "impaired", t=since_t)
            await world.links.mend(number)
