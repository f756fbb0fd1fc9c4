"""No memory left for a node: its limit is lowered, what is left is used up, and the kernel kills.

What uses it up is a process of ours in the container's control group, which the kernel is told to
spare. Nothing of it is left afterwards.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from chaosspot.cluster.cgroup import Cgroup
from chaosspot.undo import Lease, procfs

if TYPE_CHECKING:
    from chaosspot.cluster.container_life import ContainerLife

__all__ = ["exhaust"]

_SPARE_BYTES = 16 << 20  # what is left to the node at first
_WITHIN_S = 30.0
_POLL_S = 0.01

# Takes memory in the group it is told, until it is killed or its parent is gone.
_HOG = """
import select, sys
open('/proc/self/oom_score_adj', 'w').write('-1000')
open(sys.argv[1] + '/cgroup.procs', 'w').write(str(__import__('os').getpid()))
held = []
while not select.select([sys.stdin], [], [], 0.001)[0]:
    held.append(bytearray(b'x') * (1 << 20))
"""


async def exhaust(life: ContainerLife, lease: Lease, threads: anyio.CapacityLimiter) -> bool:
    """Whether the kernel was seen to kill one of the node's processes for want of memory.

    Not, when the node was gone before.

    Raises:
        OSError: it cannot be made; says why.
    """
    try:
        cgroup = life.cgroup
        before = cgroup.memory_kills
        limit_bytes = cgroup.memory_bytes + _SPARE_BYTES
        await life.limit(mem_limit=limit_bytes, memswap_limit=limit_bytes)
    except OSError:
        if life.empty.is_set():
            return False
        raise
    return bool(
        await anyio.to_thread.run_sync(
            lambda: _use_up(cgroup, before, life, lease), limiter=threads
        )
    )


def _use_up(cgroup: Cgroup, before: int, life: ContainerLife, lease: Lease) -> bool:
    argv = [sys.executable, "-I", "-S", "-c", _HOG, str(cgroup.folder("memory"))]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={procfs.RUN: lease.id}
    ) as hog:
        try:
            deadline = time.monotonic() + _WITHIN_S
            while True:
                try:
                    if cgroup.memory_kills > before:
                        return True
                except OSError:  # the group went with the node
                    return False
                if life.empty.is_set():
                    return False
                if hog.poll() is not None:
                    assert hog.stderr
                    said = (hog.stderr.read().decode().strip().splitlines() or [""])[-1]
                    raise OSError(f"{life.node.name}: its memory cannot be used up: {said}")
                if time.monotonic() > deadline:
                    raise OSError(
                        f"{life.node.name}: no kill {_WITHIN_S} s after its memory was used up"
                    )
                time.sleep(_POLL_S)
        finally:
            hog.kill()
