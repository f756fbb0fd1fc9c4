"""How fast a snapshot reaches the drive and comes back, beside the drive itself and other savers.

All ways of writing take turns, and so do those of reading, on one file system; each ends with the
file synced. ``dd`` with direct I/O, not synced, stands for the drive; two of them at once, with
half of the data each, for what it does with more than one block under way. Shown are medians over
the rounds and, because a drive's speed changes from one moment to the next, the median of the
ratios within a round. "No drive" is our writer on a drive that takes no time: what the
processor would let it do. At the end the figures are carried over to 100 GB on eight drives.

Reading is compared with direct I/O only: what a page cache holds says nothing about a drive.

    python suites/bench/snapshot.py [--bytes 2GB] [--rounds 5] [--directory DIR]
"""

from __future__ import annotations

import argparse
import logging
import mmap
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_checkpoint

from chaosspot.trainer.snapshot.direct import BLOCK_BYTES, DirectWriter, write_file
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.parts import ALIGN_BYTES
from chaosspot.trainer.snapshot.reading import read_into

TENSORS = 16
WRITERS = (1, 2, 4)
TARGET_BYTES, TARGET_DRIVES, TARGET_S = 100e9, 8, 15.0
WRITE_SHARE, READ_SHARE, TIMES_OTHERS = 0.85, 0.80, 5.0
HEADERS = {"aligned": ALIGN_BYTES, "unaligned": 1000}
"""Bytes in front of the tensors: after those of the second, all must be copied to be aligned."""

DD_WRITE, DD_READ = "dd writes", "dd reads"
TWO = "two {}"
OTHERS = ("torch.save", "safetensors", "checkpoint.save")


@dataclass
class Row:
    gb_per_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    """Resident memory at its highest, over that before."""
    cached_mb: list[float] = field(default_factory=list)
    """Growth of the page cache."""
    core_s: list[float] = field(default_factory=list)


class NoDrive(RealDisk):
    """Does nothing with what it is given, and that at once."""

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        return len(data)

    def reserve(self, descriptor: int, length: int) -> None: ...

    def truncate(self, descriptor: int, length: int) -> None: ...

    def sync(self, descriptor: int) -> None: ...


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=size, default=2_000_000_000, metavar="2GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--drive-gb-per-s", type=float, nargs="+", default=[0.5, 1.0, 2.0, 3.0])
    options = parser.parse_args()
    length = max(1, options.bytes // (2 * BLOCK_BYTES)) * 2 * BLOCK_BYTES
    logging.disable(logging.INFO)
    warnings.filterwarnings("ignore", category=UserWarning)
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-") as directory:
        show(f"{length / 1e9:.2f} GB in {directory}, {options.rounds} rounds, load {load()}")
        measure(Path(directory), length, options.rounds, rows)
    report(rows, length, options.drive_gb_per_s)
    return 0


def size(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"not a size: {text!r}, expected one like 512MB or 2GB")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " "))


def measure(directory: Path, length: int, rounds: int, rows: dict[str, Row]) -> None:
    state = {f"tensor-{index}": tensor(length // TENSORS, index) for index in range(TENSORS)}
    data = [value.numpy().data.cast("B") for value in state.values()]
    target = memoryview(mmap.mmap(-1, max(HEADERS.values()) + length))
    target[:] = bytes(len(target))  # its pages are there before anything is timed
    chunks = {kind: [memoryview(bytes(header)), *data] for kind, header in HEADERS.items()}
    path = directory / "state"
    disk = RealDisk()
    with ExitStack() as stack:
        writers = {
            count: stack.enter_context(DirectWriter(disk, writers=count)) for count in WRITERS
        }
        nothing = {
            count: stack.enter_context(DirectWriter(NoDrive(), writers=count)) for count in WRITERS
        }

        def ours(writer: DirectWriter, kind: str) -> Callable[[], object]:
            return lambda: writer.write(path, chunks[kind])

        ways = {
            DD_WRITE: dd(f"if=/dev/zero of={path} oflag=direct", length),
            TWO.format(DD_WRITE): dd(f"if=/dev/zero of={path} oflag=direct", length, 2),
        }
        for count in WRITERS:
            ways[f"ours, {count} writers"] = ours(writers[count], "aligned")
        for count in WRITERS:
            ways[f"ours, {count} writers, unaligned"] = ours(writers[count], "unaligned")
        ways |= {name: synced(save, state, path) for name, save in savers().items()}
        for kind in HEADERS:
            for count in WRITERS[:2]:
                ways[f"no drive, {count} writers, {kind}"] = ours(nothing[count], kind)
        for _ in range(rounds):
            for name, way in ways.items():
                once(rows.setdefault(name, Row()), way, length)
                remove(path)
    written = {kind: write_file(disk, directory / kind, chunks[kind]) for kind in HEADERS}

    def verified(readers: int) -> Callable[[], object]:
        whole = [target[: written["aligned"].file_bytes]]
        return lambda: read_into(
            disk, directory / "aligned", written["aligned"], whole, readers=readers
        )

    operands = f"if={directory / 'aligned'} of=/dev/null iflag=direct"
    ways = {DD_READ: dd(operands, length), TWO.format(DD_READ): dd(operands, length, 2)}
    for count in WRITERS:
        ways[f"ours, {count} readers"] = verified(count)
    apart = [memoryview(bytearray(HEADERS["unaligned"])), target[:length]]
    ways["ours, 4 readers, unaligned"] = lambda: read_into(
        disk, directory / "unaligned", written["unaligned"], apart, readers=4
    )
    for _ in range(rounds):
        for name, way in ways.items():
            once(rows.setdefault(name, Row()), way, length)


def tensor(length: int, seed: int) -> torch.Tensor:
    """Random numbers, page-aligned as pinned memory is."""
    values = torch.frombuffer(mmap.mmap(-1, length), dtype=torch.float32)
    return values.normal_(generator=torch.Generator().manual_seed(seed))


def dd(operands: str, length: int, count: int = 1) -> Callable[[], object]:
    """So many at once, each with the next part of the file."""
    blocks = length // BLOCK_BYTES // count
    place = "seek" if "of=/dev/null" not in operands else "skip"
    commands = [
        ["dd", *operands.split(), f"bs={BLOCK_BYTES}", f"count={blocks}", "conv=notrunc",
         f"{place}={index * blocks}"]
        for index in range(count)
    ]  # fmt: skip

    def way() -> None:
        running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit(f"dd failed: {shlex.join(commands[0])}")

    return way


def savers() -> dict[str, Callable[[dict[str, torch.Tensor], Path], object]]:
    return {
        "torch.save": torch.save,
        "safetensors": safetensors.torch.save_file,
        "checkpoint.save": lambda state, path: save_checkpoint(
            state, checkpoint_id=path, no_dist=True
        ),
    }


def synced(
    save: Callable[[dict[str, torch.Tensor], Path], object],
    state: dict[str, torch.Tensor],
    path: Path,
) -> Callable[[], object]:
    def way() -> None:
        save(state, path)
        for file in path.iterdir() if path.is_dir() else (path,):
            with open(file, "rb+") as opened:
                os.fsync(opened.fileno())

    return way


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def once(row: Row, way: Callable[[], object], length: int) -> None:
    os.sync()
    Path("/proc/self/clear_refs").write_text("5")  # the highest is now what there is now
    memory_kb, cached_kb = told("/proc/self/status", "VmRSS"), told("/proc/meminfo", "Cached")
    before, began_s = os.times(), time.perf_counter()
    way()
    took_s, after = time.perf_counter() - began_s, os.times()
    row.gb_per_s.append(length / took_s / 1e9)
    row.core_s.append(sum(after[:4]) - sum(before[:4]))
    row.memory_mb.append((told("/proc/self/status", "VmHWM") - memory_kb) * 1024 / 1e6)
    row.cached_mb.append((told("/proc/meminfo", "Cached") - cached_kb) * 1024 / 1e6)


def told(path: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    assert found, (path, name)
    return int(found[1])


def ratio(rows: dict[str, Row], name: str, base: str) -> float:
    """The median over the rounds of how many times as fast ``name`` is as ``base``."""
    pairs = zip(rows[name].gb_per_s, rows[base].gb_per_s, strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def report(rows: dict[str, Row], length: int, drives_gb_per_s: list[float]) -> None:
    show(f"{'':34}{'GB/s':>6}{'lowest':>8}{'highest':>8}{'of dd':>7}  memory   cache  core-s/GB")
    base = DD_WRITE
    for name, row in rows.items():
        if name == DD_READ:
            base = name
            show("reading")
        rates = sorted(row.gb_per_s)
        show(
            f"{name:34}{statistics.median(rates):6.2f}{rates[0]:8.2f}{rates[-1]:8.2f}"
            f"{ratio(rows, name, base):7.0%}"
            f"{max(row.memory_mb):5.0f} MB{max(row.cached_mb):5.0f} MB"
            f"{statistics.median(row.core_s) / length * 1e9:11.2f}"
        )
    show("memory: the most over that before; cache: growth of the page cache, by all processes\n")
    best = max(
        (f"ours, {count} writers" for count in WRITERS),
        key=lambda name: ratio(rows, name, DD_WRITE),
    )
    reader = max(
        (f"ours, {count} readers" for count in WRITERS), key=lambda name: ratio(rows, name, DD_READ)
    )
    free = statistics.median(rows["no drive, 2 writers, aligned"].gb_per_s)
    target(f"writing, {best}: of dd", ratio(rows, best, DD_WRITE), WRITE_SHARE)
    for other in OTHERS:
        target(f"writing, {best}: times {other}", ratio(rows, best, other), TIMES_OTHERS)
        show(f"  (at the speed of dd it would be {ratio(rows, DD_WRITE, other):.2f})")
    target(f"reading, {reader}: of dd", ratio(rows, reader, DD_READ), READ_SHARE)
    for name, base in ((best, TWO.format(DD_WRITE)), (reader, TWO.format(DD_READ))):
        show(f"{f'{name}: of {base}':44}{ratio(rows, name, base):6.2f}")
    drive = max(statistics.median(rows[name].gb_per_s) for name in (DD_WRITE, TWO.format(DD_WRITE)))
    limit = "the drive" if free > 2 * drive else "the processor"
    show(f"without a drive two writers would do {free:.1f} GB/s: the limit here is {limit}\n")
    carry_over(rows, best, length, sorted({*drives_gb_per_s, round(drive, 2)}))


def target(what: str, found: float, wanted: float) -> None:
    show(f"{what:44}{found:6.2f}, target {wanted}: {'met' if found >= wanted else 'MISSED'}")


def carry_over(rows: dict[str, Row], best: str, length: int, drives_gb_per_s: list[float]) -> None:
    """100 GB on eight drives, each used as well as the one here, by a rank with two cores."""
    share = min(1.0, ratio(rows, best, DD_WRITE), ratio(rows, best, TWO.format(DD_WRITE)))
    free = statistics.median(rows["no drive, 2 writers, aligned"].gb_per_s)
    core_s = statistics.median(rows[best].core_s) / length * TARGET_BYTES
    show(
        f"{TARGET_BYTES / 1e9:.0f} GB on {TARGET_DRIVES} drives, one rank each, of which we use"
        f" {share:.0%}; {core_s:.0f} core-seconds of ours and the kernel's"
    )
    for rate in drives_gb_per_s:
        took_s = TARGET_BYTES / (TARGET_DRIVES * min(rate * share, free) * 1e9)
        verdict = "met" if took_s <= TARGET_S else "MISSED"
        show(
            f"  drives of {rate:.2f} GB/s: {took_s:5.1f} s on {core_s / took_s:4.1f} cores,"
            f" target {TARGET_S:.0f} s: {verdict}"
        )
    needed = TARGET_BYTES / (TARGET_DRIVES * TARGET_S * share * 1e9)
    show(f"  drives of {needed:.2f} GB/s are needed for {TARGET_S:.0f} s")


def load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
