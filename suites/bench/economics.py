"""How fast a long trace is replayed and drawn again: 30 days of 64 nodes.

The trace is drawn from its seed: nodes are lost one by one and in bulk, by the minute, and come
back. Fails when a replay takes 5 s or more, or 1,000 bootstrap samples 20 s or more.

    python suites/bench/economics.py [--days 30] [--nodes 64] [--samples 1000] [--losses-per-h 2]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from chaosspot.economics.bootstrap import ratio_interval
from chaosspot.economics.estimate import on_trace
from chaosspot.economics.interval import Costs
from chaosspot.economics.prices import prices
from chaosspot.economics.replay import Job, replay
from chaosspot.traces import loads
from chaosspot.traces.trace import Trace

REPLAY_S = 5.0
BOOTSTRAP_S = 20.0
SEED = 20
BULK = 0.2  # of losses, that take half of the nodes or more
COSTS = Costs(interval_s=120, stall_s=2, restart_s=90, join_s=30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--losses-per-h", type=float, default=2.0)
    options = parser.parse_args()
    text = events(options.days, options.nodes, options.losses_per_h)
    start_s = time.process_time()
    trace = loads(text, name="drawn")
    load_s = time.process_time() - start_s
    report: dict[str, object] = {
        "lines": text.count("\n"),
        "events": trace.events,
        "nodes_lost": int(trace.lost.sum()),
        "load_s": round(load_s, 3),
    }
    good = True
    for name, least in (("elastic", 1), ("gang", options.nodes)):
        job = Job(nodes=options.nodes, min_nodes=least, costs=COSTS)
        figures, quick = measure(trace, job, options.samples)
        report[name] = figures
        good = good and quick
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if good else 1


def measure(trace: Trace, job: Job, samples: int) -> tuple[dict[str, float], bool]:
    start_s = time.process_time()
    done = replay(trace, job)
    replay_s = time.process_time() - start_s
    extra = done.billed_node_s - done.useful_node_s
    rng = np.random.default_rng(SEED)
    start_s = time.process_time()
    ratio_interval(extra, done.useful_node_s, rng, samples=samples)
    bootstrap_s = time.process_time() - start_s
    start_s = time.process_time()
    found = on_trace(trace, job, prices(discount=0.65), rng, samples=samples)
    figures = {
        "spells": done.spells,
        "replay_s": round(replay_s, 4),
        "bootstrap_s": round(bootstrap_s, 3),
        "everything_s": round(time.process_time() - start_s, 3),
        "net_savings": round(found.net_savings.value, 4),
        "low": round(found.net_savings.low, 4),
        "high": round(found.net_savings.high, 4),
    }
    return figures, replay_s < REPLAY_S and bootstrap_s < BOOTSTRAP_S


def events(days: int, nodes: int, losses_per_h: float) -> str:
    """Lines of events, by the minute."""
    rng = np.random.default_rng(SEED)
    live = [f"node{number}" for number in range(nodes)]
    lines = [f"0,add,{node}" for node in live]
    back: dict[int, int] = {}
    named = nodes
    for minute in range(1, days * 24 * 60 + 1):
        if live and rng.random() < losses_per_h / 60:
            bulk = rng.random() < BULK
            taken = int(rng.integers(-(-len(live) // 2), len(live) + 1)) if bulk else 1
            for _ in range(taken):
                node = live.pop(int(rng.integers(len(live))))
                lines.append(f"{minute * 60_000},remove,{node}")
            due = minute + int(rng.integers(2, 30))
            back[due] = back.get(due, 0) + taken
        for _ in range(back.pop(minute, 0)):
            live.append(f"node{named}")
            lines.append(f"{minute * 60_000},add,node{named}")
            named += 1
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
