"""A node that gets only a share of the time: SIGSTOP and SIGCONT by turns.

Imitates a noisy neighbour, a hot GPU that throttles, a failing fan. Does not prove anything about
a node whose network or disk alone is slow: here everything of it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio

from chaosspot.inject.world import World
from chaosspot.schedule import Slow

_TURN_S = 0.05  # stopped at a time; much less would be spent on signals and on seeing them work


async def inject(fault: Slow, names: Sequence[str], world: World) -> None:
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(_slow, fault, name, world)


async def _slow(fault: Slow, name: str, world: World) -> None:
    """Stop it for ``factor - 1`` times as long as it runs, however long each takes to do."""
    slowed = False
    with anyio.move_on_after(fault.duration_s):
        while True:
            stopped_s = await _stop(name, world)
            if stopped_s is None:
                return  # it is gone
            if not slowed:
                slowed = True
                world.effect(name, "slowed")
                world.in_force()
            await anyio.sleep(stopped_s / (fault.factor - 1))


async def _stop(name: str, world: World) -> float | None:
    """Stop a node for one turn; for how many seconds it was, None where it does not live."""
    paused: dict[str, float] = {}
    try:
        with anyio.CancelScope(shield=True):
            paused = await world.cluster.pause([name])
        await anyio.sleep(_TURN_S)
    finally:
        with anyio.CancelScope(shield=True):
            await world.cluster.resume(list(paused))
    return time.monotonic() - paused[name] if paused else None
