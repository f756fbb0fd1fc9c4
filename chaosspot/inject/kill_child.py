"""SIGKILL to one process that a rank started.

Imitates the kernel's out-of-memory killer taking a data loader's worker, which is seldom the
process that should have been asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaosspot.inject.world import World
from chaosspot.schedule import KillChild


async def inject(fault: KillChild, names: Sequence[str], world: World) -> None:
    for name in names:
        t = await world.cluster.kill_child(name)
        if t is not None:
            world.effect(name, "child-gone", t=t)
