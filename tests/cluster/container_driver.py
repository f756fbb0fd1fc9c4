# ruff: noqa: T201 - its output is what it is for
"""A harness to be killed: container_driver.py RUN [FAULT]. Two containers; says so, and waits.

FAULT is ``pause``, ``full`` or ``cut``.
"""

import sys
from functools import partial
from pathlib import Path

import anyio

from chaosspot.cluster import Cut, Launch
from chaosspot.cluster.containers import ContainerCluster
from chaosspot.schedule import Node
from chaosspot.undo import Lease, heal_dead_runs, heal_lost_containers, interrupts


async def main(run: Path, fault: str = "") -> None:
    with Lease.open(run) as lease:
        print("open", flush=True)
        async with ContainerCluster(run=run, lease=lease) as cluster:
            print("entered", flush=True)
            for index in range(2):
                node = Node(
                    name=f"node-{index}",
                    zone="ab"[index],
                    family="f",
                    pool="spot",
                    role="worker",
                    flash_bytes=1 << 20 if fault == "full" else None,
                )
                launch = Launch(
                    argv=("/usr/bin/sleep", "600"),
                    environments=({},),
                    log=run / "logs" / f"{node.name}.log",
                )
                await cluster.start(node, launch)
                print("one", flush=True)
            names = [node.name for node in cluster.alive()]
            if fault == "pause":
                await cluster.pause(names)
            elif fault == "full":
                for name in names:
                    await cluster.fill_flash(name)
            elif fault == "cut":
                await cluster.cut(["node-0"], Cut(off="rest"))
            print("acted", flush=True)
            await anyio.sleep_forever()


for healed in [*heal_dead_runs(), *heal_lost_containers()]:
    print(healed, flush=True)
interrupts.run(partial(main, Path(sys.argv[1]), *sys.argv[2:]))
