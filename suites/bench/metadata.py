"""One metadata server process, a thousand nodes, each polled every two seconds.

The server runs alone on one core; this process polls. Polls of a node are spread over the interval
as those of real nodes are. Fails on an error, on a 99th percentile of 100 ms or more and on
300 MB or more. A machine whose cores are busy with other work may fail it: the load is shown.

    python suites/bench/metadata.py [--cloud aws] [--nodes 1000] [--seconds 30] [--interval 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import psutil

SERVER = """
import asyncio, json, os, sys
from chaosspot.services.metadata.serve import Options, serve
os.sched_setaffinity(0, {int(sys.argv[3])})
options = Options(cloud=sys.argv[1], nodes=int(sys.argv[2]), json=True)
asyncio.run(serve(options, write=lambda line: print(line, flush=True)))
"""
PATHS = {
    "aws": "/latest/meta-data/spot/instance-action",
    "gcp": "/computeMetadata/v1/instance/preempted",
    "azure": "/metadata/scheduledevents?api-version=2020-07-01",
}
EXPECTED = {"aws": b" 404 ", "gcp": b" 200 ", "azure": b" 200 "}
HEADERS = "Host: x\r\nMetadata-Flavor: Google\r\nMetadata: true\r\nConnection: close\r\n"
TTL = "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"
P99_BOUND_S = 0.1
MEMORY_BOUND_BYTES = 300e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cloud", choices=sorted(PATHS), default="aws")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval", type=float, default=2.0)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-c", SERVER, options.cloud, str(options.nodes), str(cores[0])]
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            began_s = time.monotonic()
            nodes = json.loads(server.stdout.readline())["nodes"]
            report: dict[str, Any] = {
                "cloud": options.cloud,
                "nodes": len(nodes),
                "start_s": round(time.monotonic() - began_s, 2),
            }
            watched = psutil.Process(server.pid)
            before = watched.cpu_times()
            asked_s, own_s = time.monotonic(), time.process_time()
            took_s, errors = asyncio.run(poll(nodes, options))
            lasted_s = time.monotonic() - asked_s
            after = watched.cpu_times()
            busy_s = after.user + after.system - before.user - before.system
            report |= {
                "requests": len(took_s) + sum(errors.values()),
                "per_s": round(len(took_s) / lasted_s),
                "errors": errors,
                "p50_ms": round(statistics.median(took_s) * 1e3, 2),
                "p99_ms": round(statistics.quantiles(took_s, n=100)[98] * 1e3, 2),
                "max_ms": round(max(took_s) * 1e3, 2),
                "core": round(busy_s / lasted_s, 2),
                "core_of_poller": round((time.process_time() - own_s) / lasted_s, 2),
                "memory_mb": round(watched.memory_info().rss / 1e6),
                "load": os.getloadavg(),
            }
        finally:
            server.terminate()
            server.communicate()
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    good = (
        not errors
        and report["p99_ms"] < P99_BOUND_S * 1e3
        and report["memory_mb"] * 1e6 < MEMORY_BOUND_BYTES
    )
    return int(not good)


async def poll(
    nodes: list[dict[str, Any]], options: argparse.Namespace
) -> tuple[list[float], dict[str, int]]:
    """How long each answer took, in seconds, and what went wrong how often."""
    took_s: list[float] = []
    errors: dict[str, int] = {}
    async with asyncio.TaskGroup() as tasks:
        for number, node in enumerate(nodes):
            first_s = options.interval * number / len(nodes)
            tasks.create_task(watch(node["endpoint"], first_s, options, took_s, errors))
    return took_s, errors


async def watch(
    endpoint: str,
    first_s: float,
    options: argparse.Namespace,
    took_s: list[float],
    errors: dict[str, int],
) -> None:
    address = urlsplit(endpoint)
    where = (str(address.hostname), int(address.port or 0))
    await asyncio.sleep(first_s)
    headers = HEADERS
    if options.cloud == "aws":
        answer = await request(where, f"PUT /latest/api/token HTTP/1.1\r\n{headers}{TTL}\r\n")
        token = answer.partition(b"\r\n\r\n")[2].decode()
        headers += f"X-aws-ec2-metadata-token: {token}\r\n"
    asked = f"GET {PATHS[options.cloud]} HTTP/1.1\r\n{headers}\r\n"
    due_s = time.monotonic()
    end_s = due_s + options.seconds
    while due_s < end_s:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(5.0):
                answer = await request(where, asked)
        except (OSError, TimeoutError) as error:
            why = type(error).__name__
            errors[why] = errors.get(why, 0) + 1
        else:
            status = answer[8:13]
            if status == EXPECTED[options.cloud]:
                took_s.append(time.monotonic() - began_s)
            else:
                errors[repr(status)] = errors.get(repr(status), 0) + 1
        due_s += options.interval
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def request(where: tuple[str, int], text: str) -> bytes:
    reader, writer = await asyncio.open_connection(*where)
    try:
        writer.write(text.encode())
        return await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


if __name__ == "__main__":
    sys.exit(main())
