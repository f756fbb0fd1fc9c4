"""The embedded proxy beside the direct connection, and beside the real server where there is one.

Each server runs in a process of its own. Printed are one connection's throughput through it and
directly, in turns; how long its API takes to answer while 500 connections are at work and while a
reader stalls; and how near `bandwidth` and `latency` come to what was asked for. Exits with 1 when
the embedded proxy misses a bound. A machine whose cores are busy with other work may miss one: the
load is shown.

    python suites/bench/proxy.py [--megabytes 400] [--rounds 5] [--connections 500]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from chaosspot.services.proxy import Client, real

SERVER = """
import asyncio
from chaosspot.services.proxy.serve import Options, serve
asyncio.run(serve(Options(port=0), write=lambda line: print(line, flush=True)))
"""
# What is sent to and from is in processes of their own: neither shares a core's time with asyncio.
SINK = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
buffer = bytearray(1 << 18)
while True:
    client, _ = listener.accept()
    while client.recv_into(buffer):
        pass
    client.close()
"""
SOURCE = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
data = b"x" * int(sys.argv[1])
while True:
    client, _ = listener.accept()
    try:
        client.sendall(data)
        client.recv(1)
    except OSError:
        pass
    client.close()
"""
ASKER = """
import json, select, sys, time, http.client, urllib.parse
address = urllib.parse.urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(address.hostname, address.port)
took_ms = []
while not select.select([sys.stdin], [], [], 0.005)[0]:
    began = time.perf_counter()
    connection.request("GET", "/proxies")
    connection.getresponse().read()
    took_ms.append((time.perf_counter() - began) * 1e3)
    if len(took_ms) == 1:
        print("asking", flush=True)
print(json.dumps(took_ms))
"""
RATES_KB_PER_S = (10, 100, 1000, 10_000, 50_000)
RATIO_BOUND = 0.5
API_BOUND_S = 0.1
BANDWIDTH_BOUND = 0.05
LATENCY_BOUND_S = 0.010
LATENCY_MS = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=400, help="sent in each direction's round")
    parser.add_argument("--rounds", type=int, default=5, help="of throughput and of bandwidth")
    parser.add_argument("--connections", type=int, default=500)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    report: dict[str, Any] = {"load_before": os.getloadavg()}
    report["embedded"] = asyncio.run(embedded(options))
    found = real.find(os.environ)
    report["real"] = (
        "no toxiproxy-server here" if found is None else asyncio.run(of(found, options))
    )
    report["load_after"] = os.getloadavg()
    missed = [name for name, good in judged(report["embedded"]).items() if not good]
    report["missed"] = missed
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return int(bool(missed))


def judged(found: dict[str, Any]) -> dict[str, bool]:
    """Which bounds are kept."""
    return {
        "throughput": found["throughput"]["ratio"] >= RATIO_BOUND,
        "connections": found["connections"]["whole"] == found["connections"]["asked"],
        "api_busy": found["connections"]["api_max_ms"] < API_BOUND_S * 1e3,
        "api_stalled": found["stalled_api_max_ms"] < API_BOUND_S * 1e3,
        "latency": abs(found["latency"]["error_ms"]) < LATENCY_BOUND_S * 1e3,
        **{
            f"bandwidth {rate}": abs(each["error"]) < BANDWIDTH_BOUND
            for rate, each in found["bandwidth_kb_per_s"].items()
        },
    }


async def embedded(options: argparse.Namespace) -> dict[str, Any]:
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        async with Client(url) as client:
            return await measured(client, options)
    finally:
        process.terminate()
        process.communicate()


async def of(found: real.Real, options: argparse.Namespace) -> dict[str, Any]:
    async with real.running(found, environ=os.environ) as client:
        return {"version": await client.version(), **await measured(client, options)}


async def measured(client: Client, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "throughput": await throughput(client, options.megabytes, options.rounds),
        "connections": await connections(client, options.connections),
        "stalled_api_max_ms": await stalled(client),
        "bandwidth_kb_per_s": {
            rate: await bandwidth(client, rate, options.rounds) for rate in RATES_KB_PER_S
        },
        "latency": await latency(client),
    }


# --- throughput ---------------------------------------------------------------------------------


async def throughput(client: Client, megabytes: int, rounds: int) -> dict[str, Any]:
    """MB/s of one connection, directly and through the proxy in turns; medians."""
    sink = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert sink.stdout is not None
        direct = f"127.0.0.1:{int(sink.stdout.readline())}"
        through = (await client.create("sink", upstream=direct)).listen
        pairs = []
        for number in range(rounds + 1):
            pair = [await asyncio.to_thread(pour, where, megabytes) for where in (direct, through)]
            if number:  # the first is to warm up
                pairs.append(pair)
        await client.remove("sink")
    finally:
        sink.terminate()
        sink.communicate()
    return {
        "direct_mb_per_s": round(statistics.median(pair[0] for pair in pairs)),
        "through_mb_per_s": round(statistics.median(pair[1] for pair in pairs)),
        "ratio": round(statistics.median(pair[1] / pair[0] for pair in pairs), 2),
        "ratios": [round(pair[1] / pair[0], 2) for pair in pairs],
    }


def pour(where: str, megabytes: int) -> float:
    data = b"x" * 1_000_000
    with dialled(where) as sock:
        began_s = time.perf_counter()
        for _ in range(megabytes):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)  # all of it has been read
        return megabytes / (time.perf_counter() - began_s)


def dialled(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    return socket.create_connection((host, int(port)))


# --- many connections, and one that stalls ------------------------------------------------------


async def connections(client: Client, count: int) -> dict[str, Any]:
    """All at once, each with an echo of 64 kB ten times; and how long the API takes meanwhile."""
    data = os.urandom(65536)

    async def one(where: str) -> bool:
        reader, writer = await asyncio.open_connection(*where.rsplit(":", 1))
        try:
            for _ in range(10):
                writer.write(data)
                if await reader.readexactly(len(data)) != data:
                    return False
            return True
        finally:
            writer.close()

    async with server(echo) as upstream:
        where = (await client.create("many", upstream=upstream)).listen
        began_s = time.perf_counter()
        async with asking(client.url) as took_ms:
            work = [asyncio.create_task(one(where)) for _ in range(count)]
            whole = sum(await asyncio.gather(*work))
        lasted_s = time.perf_counter() - began_s
        await client.remove("many")
    return {
        "asked": count,
        "whole": whole,
        "s": round(lasted_s, 2),
        "api_requests": len(took_ms),
        "api_median_ms": round(statistics.median(took_ms), 1),
        "api_max_ms": round(max(took_ms), 1),
    }


async def stalled(client: Client) -> float:
    """The longest that a request takes while toxics come and go before a reader that stalls."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 1_000_000)
            await writer.drain()

    took_s = []
    async with server(flood) as upstream:
        where = (await client.create("stalled", upstream=upstream)).listen
        with await asyncio.to_thread(dialled, where):
            await asyncio.sleep(0.5)
            for _ in range(20):
                for ask in (
                    lambda: client.add_toxic("stalled", type="latency"),
                    lambda: client.proxies(),
                    lambda: client.remove_toxic("stalled", "latency_downstream"),
                ):
                    began_s = time.perf_counter()
                    await ask()
                    took_s.append(time.perf_counter() - began_s)
        await client.remove("stalled")
    return round(max(took_s) * 1e3, 1)


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[list[float]]:
    """Ask all the while, in a process that does nothing else; how long each took, ms."""
    asker = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", ASKER, url], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    took_ms: list[float] = []
    try:
        assert asker.stdout is not None
        asker.stdout.readline()
        yield took_ms
        out, _ = asker.communicate("stop")
        took_ms += json.loads(out)
    finally:
        asker.kill()
        asker.communicate()


# --- what was asked for -------------------------------------------------------------------------


async def bandwidth(client: Client, rate: int, rounds: int) -> dict[str, Any]:
    """The rate from the first byte to the last, beside the one asked for; the median."""
    size = min(max(rate * 1500, 20_000), 50_000_000)

    rates = []
    async with source(size) as upstream:
        where = (await client.create("rate", upstream=upstream)).listen
        await client.add_toxic("rate", type="bandwidth", attributes={"rate": rate})
        for _ in range(rounds):
            rates.append(await asyncio.to_thread(taken, where, size))
        await client.remove("rate")
    median = statistics.median(rates)
    return {"kb_per_s": round(median, 2), "error": round(median / rate - 1, 4)}


@asynccontextmanager
async def source(size: int) -> AsyncIterator[str]:
    """HOST:PORT of a process that sends so many bytes to everybody."""
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", SOURCE, str(size)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.communicate()


def taken(where: str, size: int) -> float:
    """KB/s of ``size`` bytes, from the connection on."""
    with dialled(where) as sock:
        began_s = time.perf_counter()
        got = 0
        while got < size:
            data = sock.recv(1 << 20)
            assert data
            got += len(data)
        return size / 1e3 / (time.perf_counter() - began_s)


async def latency(client: Client) -> dict[str, float]:
    """How much later an echo comes, median of 20 with the toxic and 20 without."""
    async with server(echo) as upstream:
        where = (await client.create("late", upstream=upstream)).listen
        without_s = statistics.median([await asyncio.to_thread(echoed, where) for _ in range(20)])
        await client.add_toxic("late", type="latency", attributes={"latency": LATENCY_MS})
        with_s = statistics.median([await asyncio.to_thread(echoed, where) for _ in range(20)])
        await client.remove("late")
    return {
        "asked_ms": LATENCY_MS,
        "median_ms": round(with_s * 1e3, 2),
        "without_ms": round(without_s * 1e3, 2),
        "error_ms": round(with_s * 1e3 - LATENCY_MS, 2),
    }


def echoed(where: str) -> float:
    with dialled(where) as sock:
        sock.sendall(b"x")  # the connection to the server is there when this comes back
        sock.recv(1)
        began_s = time.perf_counter()
        sock.sendall(b"x")
        sock.recv(1)
        return time.perf_counter() - began_s


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """HOST:PORT of a server on this loop."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()
        tasks.discard(task)

    found = await asyncio.start_server(serve_one, "127.0.0.1", 0, backlog=1024)
    try:
        yield f"127.0.0.1:{found.sockets[0].getsockname()[1]}"
    finally:
        found.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
