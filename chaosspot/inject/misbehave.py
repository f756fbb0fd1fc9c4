"""The metadata service of some nodes misbehaves for a while.

It has had an effect on a node that asked meanwhile, or was refused before it could.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio
from msgspec.structs import replace

from chaosspot.inject.world import World
from chaosspot.misbehaviour import Closed, MisbehaviourKind, Reset
from chaosspot.schedule import Misbehave


async def inject(fault: Misbehave, names: Sequence[str], world: World) -> None:
    since_t = time.monotonic()
    before = {name: world.metadata.requests(name) for name in names}
    numbers = [world.metadata.misbehave(replace(fault.how, nodes=name)) for name in names]
    try:
        await anyio.sleep(fault.duration_s)
        there = set(world.metadata.nodes())
        for name in names:
            asked = name not in there or world.metadata.requests(name) > before[name]
            if asked or _keeps_away(fault.how):
                world.effect(name, "misbehaved", t=since_t)
    finally:
        with anyio.CancelScope(shield=True):
            for number in numbers:
                await world.metadata.behave(number)


def _keeps_away(how: MisbehaviourKind) -> bool:
    """Whether no request reaches the service."""
    return isinstance(how, Closed) or (isinstance(how, Reset) and how.stage == "accept")
