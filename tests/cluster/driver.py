# ruff: noqa: T201 - its output is what it is for
"""A harness to be killed: driver.py RUN NUMBER [KIND [FAULT]]. Starts three nodes, says so, waits.

FAULT is ``pause`` (all nodes are paused), ``full`` (each has a small flash, which is filled) or
``slow`` (each writes slowly).
"""

import sys
from functools import partial
from pathlib import Path

import anyio

from chaosspot.cluster import Launch
from chaosspot.cluster.processes import ProcessCluster
from chaosspot.schedule import Node
from chaosspot.undo import Lease, heal_dead_runs, interrupts


async def main(run: Path, number: str, kind: str = "tree", fault: str = "") -> None:
    family = str(Path(__file__).with_name("family.py"))
    with Lease.open(run) as lease:
        async with ProcessCluster(run=run, lease=lease) as cluster:
            print("open", flush=True)
            for index in range(3):
                node = Node(
                    name=f"node-{index}",
                    zone="a",
                    family="f",
                    pool="spot",
                    role="worker",
                    flash_bytes=1 << 20 if fault == "full" else None,
                )
                launch = Launch(
                    argv=(sys.executable, "-I", "-S", family, kind, number),
                    environments=({}, {}),
                    log=run / "logs" / f"{node.name}.log",
                )
                await cluster.start(node, launch)
            print("started", flush=True)
            for log in (run / "logs").iterdir() if fault else ():
                while log.read_text().count("ready") < 2:  # noqa: ASYNC110 - nothing tells of it
                    await anyio.sleep(0.005)
            names = [node.name for node in cluster.alive()]
            if fault == "pause":
                await cluster.pause(names)
            for name in names:
                if fault == "full":
                    await cluster.fill_flash(name)
                elif fault == "slow":
                    await cluster.slow_flash(name, 1 << 20)
            print("acted", flush=True)
            await anyio.sleep_forever()


for healed in heal_dead_runs():
    print(healed, flush=True)
interrupts.run(partial(main, Path(sys.argv[1]), *sys.argv[2:]))
