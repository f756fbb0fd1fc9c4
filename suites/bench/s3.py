"""How much of moto's own speed is left behind the layer that verifies and misbehaves.

Puts and gets an object of some size through moto directly and through the layer, in turns, then
asks for small objects one after the other and by several threads. Prints the medians, requests per
second, the processor time that the layer took, and the most memory that the processes had. The
client, the layer and moto share this machine's cores: the load is shown.

    python suites/bench/s3.py [--mb 64] [--rounds 5] [--requests 300] [--threads 8]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import psutil

LAYER = """
import asyncio, json, sys
from chaosspot.services.s3 import S3Service
async def main():
    async with S3Service() as service:
        moto = service.reader._upstream._endpoint
        print(json.dumps({"layer": service.endpoint, "moto": moto}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=bench/20200101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}
PIECE_BYTES = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    command = [sys.executable, "-c", LAYER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            ways: dict[str, str] = json.loads(server.stdout.readline())
            report = measure(ways, options, psutil.Process(server.pid))
        finally:
            server.communicate("")
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def measure(
    ways: dict[str, str], options: argparse.Namespace, process: psutil.Process
) -> dict[str, Any]:
    body = os.urandom(options.mb * 1_000_000)
    (moto,) = process.children()
    peaks = {"layer": 0, "moto": 0}
    speeds: dict[str, list[float]] = {}
    busy_s: dict[str, float] = {}
    for _ in range(options.rounds):
        for way, endpoint in sorted(ways.items()):
            for method in ("PUT", "GET"):
                began_s, before_s = time.perf_counter(), cpu_s(process)
                got = ask(endpoint, method, "/chaosspot/large", body if method == "PUT" else b"")
                took_s = time.perf_counter() - began_s
                if way == "layer":
                    busy_s[method] = busy_s.get(method, 0.0) + cpu_s(process) - before_s
                assert method == "PUT" or got == body
                speeds.setdefault(f"{method} {way}", []).append(options.mb / took_s)
                for name, watched in (("layer", process), ("moto", moto)):
                    peaks[name] = max(peaks[name], watched.memory_info().rss)
    rates = {}
    for way, endpoint in sorted(ways.items()):
        ask(endpoint, "PUT", "/chaosspot/small", b"x" * 1000)
        numbers = count()

        def put(endpoint: str = endpoint, numbers: Any = numbers) -> None:
            ask(endpoint, "PUT", f"/chaosspot/small-{next(numbers)}", b"x" * 1000)

        def get(endpoint: str = endpoint) -> None:
            ask(endpoint, "GET", "/chaosspot/small", b"")

        before_s = cpu_s(process)
        rates[f"PUT {way}"] = round(per_s(put, options.requests, 1))
        rates[f"GET {way}"] = round(per_s(get, options.requests, 1))
        rates[f"GET {way}, {options.threads} threads"] = round(
            per_s(get, options.requests, options.threads)
        )
        if way == "layer":
            busy_s["request"] = (cpu_s(process) - before_s) / options.requests / 3
    megabytes = options.rounds * options.mb
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    return {
        "mb": options.mb,
        "mb_per_s": {name: round(median) for name, median in sorted(medians.items())},
        "put_ratio": round(medians["PUT layer"] / medians["PUT moto"], 2),
        "get_ratio": round(medians["GET layer"] / medians["GET moto"], 2),
        "requests_per_s": rates,
        "layer_core_ms": {
            "a MB put": round(busy_s["PUT"] / megabytes * 1e3, 2),
            "a MB got": round(busy_s["GET"] / megabytes * 1e3, 2),
            "a small request": round(busy_s["request"] * 1e3, 2),
        },
        "memory_mb": {name: round(peak / 1e6) for name, peak in peaks.items()},
        "load": os.getloadavg(),
    }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def per_s(act: Callable[[], None], requests: int, threads: int) -> float:
    began_s = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(act) for _ in range(requests)]:
            done.result()
    return requests / (time.perf_counter() - began_s)


def ask(endpoint: str, method: str, target: str, body: bytes) -> bytes:
    """One request on a connection of its own, which is all that moto gives."""
    address = urlsplit(endpoint)
    connection = http.client.HTTPConnection(
        str(address.hostname), address.port, blocksize=PIECE_BYTES
    )
    try:
        connection.request(method, target, body=body or None, headers=SIGNED)
        answer = connection.getresponse()
        got = answer.read()
        if answer.status != 200:
            raise OSError(f"{method} {target}: {answer.status} {got[:200]!r}")
        return got
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
