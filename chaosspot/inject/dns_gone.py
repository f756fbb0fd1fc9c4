"""Nobody answers when the nodes ask for a name.

Imitates a cluster whose name service is overloaded or gone. Connections that there are go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import DnsGone


async def inject(fault: DnsGone, names: Sequence[str], world: World) -> None:
    try:
        for name, t in (await world.isolated.hush(names)).items():
            world.effect(name, "nameless", t=t)
        world.in_force()
        await anyio.sleep(fault.duration_s)
    finally:
        with anyio.CancelScope(shield=True):
            await world.isolated.unhush(names)
