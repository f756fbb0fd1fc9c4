"""How long a snapshot stops training, beside a plain copy of memory and beside PyTorch's own.

Three measurements, each with the machine's own limit beside it:

- the trainer's copy of the state into its warm buffers, a plain copy between warm buffers of the
  same length, and the time until ``torch.distributed.checkpoint.async_save`` returns, by turns;
- a trainer that snapshots after every step of a block and after none of the next, by turns: what a
  step takes more than the copy itself;
- the memory that a trainer takes more while it snapshots: two copies of the state, and the blocks
  that are being written.

Bounds are of the mean over rounds or pairs: a target is missed, and the exit code 1, only if the
whole 90 % interval is beyond it, so that a busy machine alone fails nothing.

    python suites/bench/stall.py [--bytes 512MB] [--rounds 10] [--ballast 64MB] [--pairs 10]
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from overhead import interval
from snapshot import load, show, size, told
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import async_save

from chaosspot import content
from chaosspot.trainer import train
from chaosspot.trainer.config import TrainConfig
from chaosspot.trainer.loop import Trainer
from chaosspot.trainer.reduction import Votes
from chaosspot.trainer.snapshot.direct import BLOCK_BYTES
from chaosspot.trainer.snapshot.keeper import SnapshotKeeper
from chaosspot.trainer.snapshot.parts import Part, SnapshotId
from chaosspot.trainer.snapshot.staging import Stage, host_buffer
from chaosspot.trainer.state import TrainState

COPY_TIMES, OTHERS_SHARE, STEP_TIMES = 1.3, 0.25, 1.05
BLOCK_STEPS, SETTLING_STEPS = 8, 3  # what was under way does not count
WRITERS = 2
MEMORY_SLACK_MB = 16.0  # of the allocator, and stacks of threads
CORPUS = "fixtures/corpus/apache-2.0.txt"
TIMEOUT_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=size, default=size("512MB"), metavar="512MB")
    parser.add_argument("--rounds", type=int, default=10, help="of copies, by turns")
    parser.add_argument("--ballast", type=size, default=size("64MB"), help="of the trainer")
    parser.add_argument("--pairs", type=int, default=10, help="of blocks with and without")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # as the trainer does
    show(f"{options.bytes / 1e6:.0f} MB of state, {options.rounds} rounds, load {load()}")
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-") as directory:
        folder = Path(directory)
        kept = [
            memory(folder, options.bytes),
            *copies(folder, options.bytes, options.rounds),
            steps(folder, options.ballast, options.pairs),
        ]
    show(f"load {load()}")
    return int(not all(kept))


def target(what: str, ratios: list[float], wanted: float) -> bool:
    """Show whether the mean of the ratios is at most what is wanted, as far as can be told."""
    mean, low, high = interval(ratios)
    verdict = "met" if high <= wanted else "cannot be told" if low <= wanted else "MISSED"
    show(f"{what:58}{mean:6.2f} ({low:.2f} to {high:.2f}), target {wanted}: {verdict}")
    return verdict != "MISSED"


# --- the copy -----------------------------------------------------------------------------------


def state_of(length: int) -> TrainState:
    return TrainState(config_of(length), torch.device("cpu"))


def config_of(length: int, flash: Path | None = None) -> TrainConfig:
    return TrainConfig(data=Path("unused"), steps=1, ballast_bytes=length, flash=flash)


def copies(directory: Path, length: int, rounds: int) -> list[bool]:
    state = state_of(length)
    stage = Stage(state)
    total = stage.layout.total_bytes
    warm = host_buffer(total).numpy()[: sum(t.nbytes for t in state.tensors().values())]
    # In memory as the state's is: it depends on the size of its pages how fast that is read.
    source = torch.cat([t.view(torch.uint8).flatten() for t in state.tensors().values()]).numpy()
    kept_stager = DefaultStager(StagingOptions(False, False, False, False))  # as by default

    def plain() -> None:
        np.copyto(warm, source)

    def ours() -> None:
        staged = stage.copy(state)
        assert staged is not None
        staged.release()

    def theirs(**more: Any) -> Callable[[], object]:
        def way() -> object:
            path = directory / "checkpoint"
            shutil.rmtree(path, ignore_errors=True)
            tensors = dict(state.tensors())
            return async_save(tensors, checkpoint_id=path, no_dist=True, **more)

        return way

    ways: dict[str, Callable[[], object]] = {
        "a plain copy": plain,
        "Stage.copy": ours,
        "async_save": theirs(),
        "async_save, stager kept": theirs(async_stager=kept_stager),
    }
    took_s: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            began_s = time.perf_counter()
            future: Any = way()
            seconds = time.perf_counter() - began_s
            if number:  # the first is to warm up
                took_s[name].append(seconds)
            if future is not None:  # what it does afterwards is not to slow down the next
                future.result()
    for name, seconds_ in took_s.items():
        median = statistics.median(seconds_)
        show(
            f"{name:28}{median * 1e3:8.1f} ms{min(seconds_) * 1e3:8.1f} to"
            f"{max(seconds_) * 1e3:7.1f}{total / median / 1e9:8.2f} GB/s"
        )

    def ratios(name: str, base: str) -> list[float]:
        pairs = zip(took_s[name], took_s[base], strict=True)
        return [ours_s / theirs_s for ours_s, theirs_s in pairs]

    show("async_save is timed until it returns, what it writes in the background is not")
    kept = target("stall, in plain copies", ratios("Stage.copy", "a plain copy"), COPY_TIMES)
    less = target("stall, of async_save's", ratios("Stage.copy", "async_save"), OTHERS_SHARE)
    mean, low, high = interval(ratios("Stage.copy", "async_save, stager kept"))
    show(f"{'stall, of async_save with a kept stager':58}{mean:6.2f} ({low:.2f} to {high:.2f})")
    return [kept, less]


# --- what a step takes more ---------------------------------------------------------------------


class InTurns(Trainer):
    """Snapshots after every step of a block, and after none of the next."""

    stalls_s: dict[int, float]

    def vote(self, step: int) -> None:
        self.reduction.vote(Votes(snapshots_after(step), False, False, False))

    def snapshot(self, part: Part, *, upload: bool) -> None:
        super().snapshot(part, upload=upload)
        type(self).stalls_s[self.state.step] = self.snapshots.stage.stall_s


def snapshots_after(step: int) -> bool:
    return (step - 1) // BLOCK_STEPS % 2 == 1


def steps(directory: Path, ballast_bytes: int, pairs: int) -> bool:
    """One trainer: blocks of steps without and with snapshots, by turns."""
    took_s: dict[int, float] = {}
    InTurns.stalls_s = {}
    settings = replace(
        config_of(ballast_bytes, directory / "flash"),
        data=content.content_root() / CORPUS,
        steps=(2 * pairs + 2) * BLOCK_STEPS,
        digest=False,
    )
    train(settings, kind=InTurns, on_step=lambda r: took_s.update({r.step: r.seconds}))
    ratios = []
    for number in range(1, pairs + 1):  # the first is to warm up
        first = 2 * number * BLOCK_STEPS + 1
        without, with_ = (
            range(start + SETTLING_STEPS, start + BLOCK_STEPS)
            for start in (first, first + BLOCK_STEPS)
        )
        alone_s = statistics.median(took_s[step] for step in without)
        stall_s = statistics.median(InTurns.stalls_s[step] for step in with_)
        but_s = statistics.median(took_s[step] - InTurns.stalls_s[step] for step in with_)
        ratios.append(but_s / alone_s)
        show(
            f"pair {number:2}: a step {alone_s * 1e3:6.1f} ms, with a snapshot"
            f" {(but_s + stall_s) * 1e3:6.1f} ms, of which stall {stall_s * 1e3:5.1f} ms"
        )
    what = f"a step with a snapshot of {ballast_bytes / 1e6:.0f} MB but for its stall, in steps"
    return target(what, ratios, STEP_TIMES)


# --- memory -------------------------------------------------------------------------------------


def memory(directory: Path, length: int) -> bool:
    """The most that is resident while snapshots are taken, over what there was before."""
    state = state_of(length)
    before_kb = told("/proc/self/status", "VmRSS")
    with ExitStack() as stack:
        keeper = SnapshotKeeper(config_of(length, directory / "memory"), state, "bench", stack)
        Path("/proc/self/clear_refs").write_text("5")  # the highest is now what there is now
        for step in range(1, 7):
            state.step = step
            keeper.take(Part(SnapshotId(step, 1, 1), 0), digest=None, upload=False)
            if step % 2 == 0 and not keeper.settle(TIMEOUT_S):
                sys.exit("a snapshot was not written")
        most_mb = (told("/proc/self/status", "VmHWM") - before_kb) * 1024 / 1e6
        buffers_mb, pool_mb = 2 * keeper.total_bytes / 1e6, WRITERS * BLOCK_BYTES / 1e6
    kept = most_mb <= buffers_mb + pool_mb + MEMORY_SLACK_MB
    show(
        f"memory for snapshots: {most_mb:.0f} MB at most; two copies of the state are"
        f" {buffers_mb:.0f} MB, the blocks being written {pool_mb:.0f} MB:"
        f" {'met' if kept else 'MISSED'}"
    )
    return kept


if __name__ == "__main__":
    sys.exit(main())
