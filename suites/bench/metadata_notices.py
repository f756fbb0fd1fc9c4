"""How long after its publication a notice is seen: by the reference trainer's watcher, on sockets.

One metadata server process, and in this process a watcher for each node of it, in the usual pace. A
notice is published to one node after the other through the service's control, spread over the
polls. Counted from before it is published until the watcher reports it. Fails when a notice is not
seen within ten seconds, or a median is above its bound: 1.2 s with AWS and Azure, which are polled
every 2 s, and 0.1 s with Google Cloud's hanging GET. A machine whose cores are busy with other
work may fail it: the load is shown.

    python suites/bench/metadata_notices.py [--cloud aws] [--notices 200]
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from chaosspot.trainer.notice import NoticeBoard
from chaosspot.trainer.watch.detect import Provider
from chaosspot.trainer.watch.values import Notice, Pace, Report
from chaosspot.trainer.watcher import Watcher

# Each node in a zone of its own: Azure shows its events to nobody else then.
SERVER = """
import asyncio, sys
from chaosspot.services.metadata.serve import Options, serve
zones = tuple(f"zone-{n}" for n in range(int(sys.argv[2])))
options = Options(cloud=sys.argv[1], nodes=len(zones), zones=zones, json=True)
asyncio.run(serve(options, write=lambda line: print(line, flush=True)))
"""
MEDIAN_BOUND_S: dict[Provider, float] = {"aws": 1.2, "gcp": 0.1, "azure": 1.2}
WATCHING_S = 30.0  # for every watcher to have asked a few times
SEEN_S = 10.0


class Stamped(NoticeBoard):
    """A board that knows when its notices came."""

    def __init__(self) -> None:
        super().__init__()
        self.seen_s: list[float] = []

    def post(self, report: Report) -> None:
        if isinstance(report, Notice):
            self.seen_s.append(time.monotonic())
        super().post(report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cloud", choices=sorted(MEDIAN_BOUND_S), action="append")
    parser.add_argument("--notices", type=int, default=200)
    options = parser.parse_args()
    logging.getLogger("chaosspot").addHandler(logging.NullHandler())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    good = True
    for cloud in options.cloud or MEDIAN_BOUND_S:
        delays_s, missed = measure(cloud, options.notices)
        median_s = statistics.median(delays_s) if delays_s else float("inf")
        report = {
            "cloud": cloud,
            "notices": options.notices,
            "missed": missed,
            "median_s": round(median_s, 3),
            "worst_s": round(max(delays_s, default=float("inf")), 3),
            "bound_s": MEDIAN_BOUND_S[cloud],
            "load": os.getloadavg(),
        }
        sys.stdout.write(json.dumps(report) + "\n")
        good = good and not missed and median_s <= MEDIAN_BOUND_S[cloud]
    return int(not good)


def measure(cloud: Provider, count: int) -> tuple[list[float], int]:
    """The delay of each notice that was seen, in seconds, and how many were not, or not once."""
    command = [sys.executable, "-c", SERVER, cloud, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            return published(cloud, told["nodes"], Control(told["control"]))
        finally:
            server.terminate()
            server.communicate()


class Control:
    """The service's control, on one connection."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30.0)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, sent, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {text!r}")
        return json.loads(text)


def published(
    cloud: Provider, nodes: list[dict[str, Any]], control: Control
) -> tuple[list[float], int]:
    pace_s = Pace().interval_s / len(nodes)
    boards = {node["node"]: Stamped() for node in nodes}
    published_s = {}
    with ExitStack() as watching:
        for node in nodes:  # one after the other, as nodes start
            watcher = Watcher(node["endpoint"], boards[node["node"]], provider=cloud)
            watching.enter_context(watcher)
            time.sleep(pace_s)
        # of Google Cloud's, the third request hangs
        wait(lambda: all(n["requests"] >= 3 for n in control.ask("GET", "/nodes")["nodes"]))
        order = list(boards)
        random.Random(1).shuffle(order)  # else each would come at the same time after a poll
        for name in order:
            began_s = published_s[name] = time.monotonic()
            control.ask("POST", "/notices", {"nodes": [name], "lead_s": 120.0})
            time.sleep(max(0.0, began_s + pace_s - time.monotonic()))
        give_up_s = time.monotonic() + SEEN_S
        while time.monotonic() < give_up_s and not all(b.seen_s for b in boards.values()):
            time.sleep(0.01)
    seen = {name: board.seen_s for name, board in boards.items() if len(board.seen_s) == 1}
    delays_s = [at_s - published_s[name] for name, (at_s,) in seen.items()]
    return delays_s, len(boards) - len(seen)


def wait(ask: Any) -> None:
    give_up_s = time.monotonic() + WATCHING_S
    while not ask():
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"not every watcher has asked within {WATCHING_S:g} s")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
