"""How fast a snapshot is read back from flash and verified, beside the drive itself.

``Recovery.read`` as a rank calls it that comes back to its own disk, and ``dd`` with direct I/O on
the same file, by turns. A restore makes memory for the image and reads into it; reading alone is
shown, too. What is read is compared with what was saved, outside the time. The target
is missed, and the exit code 1, only if the whole 90 % interval is beyond it.

    python suites/bench/restore.py [--bytes 2GB] [--rounds 7] [--directory DIR]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from overhead import interval
from snapshot import BLOCK_BYTES, dd, load, show, size

from chaosspot.trainer.agreement import Reading, agree
from chaosspot.trainer.config import TrainConfig
from chaosspot.trainer.restore import Recovery, Restored
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.parts import Part, SnapshotId
from chaosspot.trainer.snapshot.staging import Stage, host_buffer
from chaosspot.trainer.state import TrainState

READ_SHARE = 0.80
JOB = "bench"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=size, default=size("2GB"), metavar="2GB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    logging.disable(logging.INFO)
    with (
        tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-") as directory,
        Flash(Path(directory), keep=1) as flash,
    ):
        show(f"{options.bytes / 1e9:.2f} GB in {directory}, {options.rounds} rounds, load {load()}")
        part, recovery, digest = saved(flash, options.bytes)
        return int(not measured(flash, part, recovery, digest, options.rounds))


def saved(flash: Flash, length: int) -> tuple[Part, Recovery, str]:
    """A snapshot of so much state on flash, and what finds it there again."""
    config = TrainConfig(data=Path("unused"), steps=1, ballast_bytes=length)
    state = TrainState(config, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    ballast = state.tensors()["ballast"]
    ballast[: length // 8 * 8].view(torch.int64).random_(generator=generator)
    state.step = 1
    stage = Stage(state)
    staged = stage.copy(state)
    assert staged is not None
    part, digest = Part(SnapshotId(1, 1, 1), 0), state.digest()
    flash.write(
        part,
        staged.bytes_of(part),
        lambda sums: Manifest.of(part, stage.layout, sums, job=JOB, digest=digest),
    )
    staged.release()
    return part, Recovery(flash=flash, store=None, job=JOB, stage=stage), digest


def measured(flash: Flash, part: Part, recovery: Recovery, digest: str, rounds: int) -> bool:
    reading = agree([recovery.holdings(0)])
    assert reading is not None
    path, manifest = flash.root / part.data_key, flash.manifest(part)
    length = manifest.sums.file_bytes
    target = host_buffer(length).numpy().data
    restored: list[Restored] = []
    ways: dict[str, Callable[[], object]] = {
        "dd reads": dd(f"if={path} of=/dev/null iflag=direct", length),
        "memory for the image, no reading": lambda: host_buffer(length),
        "read into memory that is there": lambda: flash.read(part, manifest.sums, target),
        "Recovery.read": lambda: restored.append(read(recovery, reading)),
    }
    gb_per_s: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            bytes_ = length // BLOCK_BYTES * BLOCK_BYTES if name.startswith("dd") else length
            began_s = time.perf_counter()
            way()
            took_s = time.perf_counter() - began_s
            if number:  # the first is to warm up
                gb_per_s[name].append(bytes_ / took_s / 1e9)
        verify(restored.pop(), digest if number == 0 else None)
    base = gb_per_s["dd reads"]
    for name, rates in gb_per_s.items():
        mean, low, high = interval(
            [ours / theirs for ours, theirs in zip(rates, base, strict=True)]
        )
        show(
            f"{name:34}{statistics.median(rates):6.2f} GB/s ({min(rates):.2f} to {max(rates):.2f}),"
            f" of dd {mean:.2f} ({low:.2f} to {high:.2f})"
        )
    verdict = "met" if low >= READ_SHARE else "cannot be told" if high >= READ_SHARE else "MISSED"
    show(f"a verified restore: {mean:.2f} of dd, target {READ_SHARE}: {verdict}; load {load()}")
    return verdict != "MISSED"


def read(recovery: Recovery, reading: Reading) -> Restored:
    return recovery.read(reading, 0)


def verify(restored: Restored, digest: str | None) -> None:
    """That all was read and found good; with a digest, that it is the state that was saved."""
    if not restored.good:
        sys.exit("the snapshot could not be read")
    if digest is None:
        restored.loan.end()
        return
    ballast = len(restored.tensors()["ballast"])
    config = TrainConfig(data=Path("unused"), steps=1, seed=5, ballast_bytes=ballast)
    state = TrainState(config, torch.device("cpu"))
    state.load_state_dict(dict(restored.tensors()))
    if state.digest() != digest:
        sys.exit("what was read is not what was saved")
    restored.loan.end()


if __name__ == "__main__":
    sys.exit(main())
