"""Straight to the store misses the deadline of a notice; flash and the peers make it.

100 GB, a notice of 120 s and the rates of a node, scaled down: the state to ``--bytes``, time to
``--notice``, the rates so that everything takes the same share of the notice as it does there. The
store and the peer are reached through the embedded proxy, with its ``bandwidth``; the drive is the
one here with a bound. Measured are the trainer's own parts: flash, and the transport by which a
peer takes the state over; predicted is what ``drain_plan`` says of the same rates. Exits with 1 if
the table does not say what the first line does.

    python suites/bench/deadline.py [--bytes 200MB] [--notice 12]
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import torch
from proxy import SERVER
from snapshot import NoDrive, load, show, size

from chaosspot.services.proxy import Client
from chaosspot.trainer.config import TrainConfig
from chaosspot.trainer.mended import Transport
from chaosspot.trainer.plan import DrainPlan, Rates, drain_plan
from chaosspot.trainer.quiet import quiet_torchft
from chaosspot.trainer.snapshot.direct import BLOCK_BYTES, write_file
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.parts import Part, SnapshotId, complete
from chaosspot.trainer.snapshot.staging import Stage, Staged
from chaosspot.trainer.snapshot.store import DirectoryStore
from chaosspot.trainer.state import TrainState

JOB = "bench"
TIMEOUT_S = 300.0
STRAIGHT, HANDED_OVER = "straight to the store", "to flash, and handed over to a peer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A state that has to be away from its node when ``notice_s`` have passed."""

    state_bytes: float = 100e9
    notice_s: float = 120.0
    store_bytes_per_s: float = 0.5e9
    """Of one node to an object store."""
    flash_bytes_per_s: float = 2e9
    peer_bytes_per_s: float = 5e9

    def scaled(self, state_bytes: int, notice_s: float) -> Case:
        """The same with another state and notice; everything takes the same share of the notice."""
        factor = (state_bytes / self.state_bytes) * (self.notice_s / notice_s)
        return Case(
            state_bytes=state_bytes,
            notice_s=notice_s,
            store_bytes_per_s=self.store_bytes_per_s * factor,
            flash_bytes_per_s=self.flash_bytes_per_s * factor,
            peer_bytes_per_s=self.peer_bytes_per_s * factor,
        )

    def plan(self, way: str) -> DrainPlan:
        """What a rank that leaves alone would plan, if this were how it brings its state away."""
        rates = (
            Rates(store=self.store_bytes_per_s)
            if way == STRAIGHT
            else Rates(flash=self.flash_bytes_per_s, store=self.peer_bytes_per_s)
        )
        return drain_plan(
            time_left_s=self.notice_s,
            staying=1,
            leaving=1,
            total_bytes=round(self.state_bytes),
            has_store=True,
            rates=rates,
        )


FIELD = Case()


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One way: what was to be expected, in the field and here, and what came of it."""

    way: str
    field: DrainPlan
    here: DrainPlan
    measured_s: float
    in_time: bool
    """The state was complete elsewhere when the node had to be gone."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=size, default=size("200MB"), metavar="200MB")
    parser.add_argument("--notice", type=float, default=12.0, metavar="SECONDS")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-") as directory:
        case, lines = measured(Path(directory), options.bytes, options.notice)
    show(table(case, lines))
    show(f"load {load()}")
    return int(not as_claimed(lines))


def as_claimed(lines: list[Line]) -> bool:
    """Whether the store was too slow and the rest was not, both as predicted."""
    return all(
        line.in_time == (line.way == HANDED_OVER)
        and (line.here.margin_s >= 0) == (line.field.margin_s >= 0) == line.in_time
        for line in lines
    )


def table(case: Case, lines: list[Line]) -> str:
    heads = f"{FIELD.state_bytes / 1e9:.0f} GB", f"{case.state_bytes / 1e6:.0f} MB"
    rows = [
        f"{'':38}{heads[0]:>12}{heads[1]:>12}",
        f"{'':38}{'predicted':>12}{'predicted':>12}{'measured':>12}  in time",
    ]
    for line in lines:
        rows.append(
            f"{line.way:38}{line.field.predicted_s:10.1f} s{line.here.predicted_s:10.2f} s"
            f"{line.measured_s:10.2f} s  {'yes' if line.in_time else 'NO'}"
            f" (predicted: {'yes' if line.here.margin_s >= 0 else 'NO'})"
        )
    rows.append(f"{'the notice':38}{FIELD.notice_s:10.1f} s{case.notice_s:10.2f} s")
    for name, rate in (("store", "store"), ("flash", "flash"), ("peer", "peer")):
        there, here = (getattr(each, f"{rate}_bytes_per_s") for each in (FIELD, case))
        rows.append(f"{f'bound of the {name}':38}{there / 1e9:7.2f} GB/s{here / 1e6:7.2f} MB/s")
    return "\n".join(rows)


def measured(directory: Path, ballast_bytes: int, notice_s: float) -> tuple[Case, list[Line]]:
    """Both ways, one after the other, each with a notice of its own."""
    quiet_torchft(verbose=False)
    state = state_of(ballast_bytes)
    stage = Stage(state)
    case = FIELD.scaled(stage.layout.total_bytes, notice_s)
    lines = []
    with proxies() as url:
        for way in (STRAIGHT, HANDED_OVER):
            staged = stage.copy(state)
            assert staged is not None
            if way == STRAIGHT:
                took_s = to_store(directory / "store", url, case, stage, staged)
            else:
                took_s = to_peer(directory / "flash", url, case, stage, staged, state)
            staged.release()
            plans = FIELD.plan(way), case.plan(way)
            in_time = took_s <= notice_s
            lines.append(
                Line(way=way, field=plans[0], here=plans[1], measured_s=took_s, in_time=in_time)
            )
    return case, lines


def state_of(ballast_bytes: int, seed: int = 0) -> TrainState:
    config = TrainConfig(
        data=Path("unused"), steps=1, width=16, layers=1, heads=2, seq_len_bytes=8, seed=seed,
        ballast_bytes=ballast_bytes,
    )  # fmt: skip
    return TrainState(config, torch.device("cpu"))


def whole(staged: Staged) -> Part:
    return Part(SnapshotId(staged.step, 1, 1), 0)


# --- straight to the store ----------------------------------------------------------------------


def to_store(folder: Path, url: str, case: Case, stage: Stage, staged: Staged) -> float:
    """Seconds until all of it is in the store; what is not there at the deadline is lost."""
    part, store = whole(staged), DirectoryStore(folder)
    folder.mkdir()
    data = staged.bytes_of(part)
    sums = write_file(NoDrive(), folder.with_name("nothing"), [data])
    manifest = Manifest.of(part, stage.layout, sums, job=JOB, digest=None)
    with serving(store) as upstream:
        where = throttled(url, "store", upstream, "upstream", case.store_bytes_per_s)
        began_s = time.monotonic()
        put(where, part.data_key, data)
        put(where, part.manifest_key, manifest.encode())
        took_s = time.monotonic() - began_s
    if complete(store.keys()) != [part.of]:
        sys.exit("the store does not have what was put there")
    return took_s


def put(where: str, key: str, value: bytes | memoryview) -> None:
    connection = http.client.HTTPConnection(where, timeout=TIMEOUT_S)
    try:
        connection.request("PUT", f"/{key}", body=value)
        if (status := connection.getresponse().status) != http.HTTPStatus.OK:
            sys.exit(f"PUT {key}: {status}")
    finally:
        connection.close()


@contextmanager
def serving(store: DirectoryStore) -> Iterator[str]:
    """HOST:PORT of a server that takes what is put, and answers once it is durable."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            value = self.rfile.read(int(self.headers["Content-Length"]))
            store.put(self.path.removeprefix("/"), value)
            self.send_response(http.HTTPStatus.OK)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# --- to flash and to a peer ---------------------------------------------------------------------


class BoundDisk(RealDisk):
    """A drive that takes so many bytes a second, all threads together."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_s = 0.0

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        written = super().pwrite(descriptor, data, offset)
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic()) + written / self._bytes_per_s
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))
        return written


def to_peer(
    folder: Path, url: str, case: Case, stage: Stage, staged: Staged, state: TrainState
) -> float:
    """Seconds until it is complete on flash and a peer has taken it over."""
    peer = state_of(len(state.tensors()["ballast"]), seed=1)
    part, digest = whole(staged), state.digest()  # of the random state as well, which is global
    timeout = timedelta(seconds=TIMEOUT_S)
    disk = BoundDisk(case.flash_bytes_per_s)
    block_bytes = min(BLOCK_BYTES, max(4096, int(case.state_bytes / 16) // 4096 * 4096))
    with ExitStack() as stack:
        flash = stack.enter_context(Flash(folder, keep=1, disk=disk, block_bytes=block_bytes))
        transport = Transport("127.0.0.1", timeout)
        stack.callback(transport.shutdown)
        upstream = f"127.0.0.1:{transport._server.socket.getsockname()[1]}"
        where = throttled(url, "peer", upstream, "downstream", case.peer_bytes_per_s)
        began_s = time.monotonic()
        flash.write(
            part,
            staged.bytes_of(part),
            lambda sums: Manifest.of(part, stage.layout, sums, job=JOB, digest=digest),
        )
        transport.send_checkpoint([1], state.step, state.state_dict(), timeout)
        taken = transport.recv_checkpoint(0, f"http://{where}/checkpoint/", state.step, timeout)
        peer.load_state_dict(taken)
        took_s = time.monotonic() - began_s
        transport.disallow_checkpoint()
        if flash.parts() != [part] or peer.digest() != digest:
            sys.exit("what was handed over is not what was there")
    return took_s


# --- the embedded proxy -------------------------------------------------------------------------


@contextmanager
def proxies() -> Iterator[str]:
    """URL of a proxy server in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.communicate()


def throttled(
    url: str,
    name: str,
    upstream: str,
    stream: Literal["upstream", "downstream"],
    bytes_per_s: float,
) -> str:
    """HOST:PORT that leads to ``upstream`` at this rate."""

    async def make() -> str:
        async with Client(url) as client:
            proxy = await client.create(name, upstream=upstream)
            rate = {"rate": max(1, round(bytes_per_s / 1e3))}
            await client.add_toxic(name, type="bandwidth", stream=stream, attributes=rate)
            return proxy.listen

    return asyncio.run(make())


if __name__ == "__main__":
    sys.exit(main())
