"""Nodes that live on and cannot reach others: packets to and from them are lost on every network.

Imitates a broken switch, a wrong route or a firewall between zones. Does not prove anything about
links that are only bad; and what a node has of the cloud and of the store stays in reach.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.cluster import Cut
from chaosspot.inject.world import World
from chaosspot.schedule import Partition


async def inject(fault: Partition, names: Sequence[str], world: World) -> None:
    cut = Cut(off=fault.off, one_way=fault.one_way)
    number, seen = await world.isolated.cut(names, cut)
    try:
        for name, t in seen.items():
            world.effect(name, "cut-off", t=t)
        world.in_force()
        await anyio.sleep(fault.duration_s)
    finally:
        with anyio.CancelScope(shield=True):
            await world.isolated.mend(number)
