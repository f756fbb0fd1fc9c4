"""How each kind of fault is made: one injector a file, keyed by the fault's type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from chaosspot.inject import (
    disk_full,
    dns_gone,
    grow,
    hold,
    kill,
    kill_child,
    misbehave,
    network,
    notice,
    object_store,
    out_of_memory,
    partition,
    pause,
    slow,
    slow_flash,
    terminate,
    throttle_cpu,
)
from chaosspot.inject.world import World
from chaosspot.schedule import (
    DiskFull,
    DnsGone,
    Fault,
    Grow,
    Hold,
    Kill,
    KillChild,
    Misbehave,
    Network,
    Notice,
    ObjectStore,
    OutOfMemory,
    Partition,
    Pause,
    Slow,
    SlowFlash,
    Terminate,
    ThrottleCpu,
)

__all__ = ["World", "inject"]

Injector = Callable[[Any, Sequence[str], World], Awaitable[None]]

INJECTORS: dict[type[Fault], Injector] = {
    Kill: kill.inject,
    Terminate: terminate.inject,
    Notice: notice.inject,
    KillChild: kill_child.inject,
    Pause: pause.inject,
    Slow: slow.inject,
    Hold: hold.inject,
    DiskFull: disk_full.inject,
    SlowFlash: slow_flash.inject,
    Grow: grow.inject,
    Misbehave: misbehave.inject,
    ObjectStore: object_store.inject,
    Network: network.inject,
    Partition: partition.inject,
    OutOfMemory: out_of_memory.inject,
    ThrottleCpu: throttle_cpu.inject,
    DnsGone: dns_gone.inject,
}


async def inject(fault: Fault, names: Sequence[str], world: World) -> None:
    """Make ``fault`` happen to the named nodes and heal it; returns when both are done.

    Every effect is reported to ``world`` as the harness itself observed it.
    """
    await INJECTORS[type(fault)](fault, names, world)
