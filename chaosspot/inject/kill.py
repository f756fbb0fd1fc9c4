"""SIGKILL to whole process trees, as when a host fails or a node is reclaimed without notice.

Imitates the sudden loss of an instance. Does not prove anything about power loss: the page cache
of the node survives, and so does what was written but not synced if the flash is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaosspot.inject.world import World
from chaosspot.schedule import Kill


async def inject(fault: Kill, names: Sequence[str], world: World) -> None:
    gone = await world.cluster.kill(names, keep_flash=fault.keep_flash)
    for name in names:
        world.effect(name, "gone", t=gone[name].t)
