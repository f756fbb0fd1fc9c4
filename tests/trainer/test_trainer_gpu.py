"""The reference trainer on a CUDA device: what is copied while it computes, and how fast.

``make gpu`` runs these on one device in under four minutes and prints their figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from snapshotted import whole
from torch import Tensor

from chaosspot import content
from chaosspot.trainer import TrainConfig, TrainResult, train
from chaosspot.trainer.loop import Trainer
from chaosspot.trainer.plan import Cadence
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.image import layout_of
from chaosspot.trainer.snapshot.staging import CudaCopier, Pairs, Stage, Staged, host_buffer
from chaosspot.trainer.state import TrainState

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CORPUS = "fixtures/corpus/apache-2.0.txt"
BALLAST_BYTES = 1 << 30
"""Takes tens of milliseconds to copy, so that an update that does not wait is seen to race."""
ROUNDS = 7
SMALL = {"width": 16, "layers": 1, "heads": 2, "seq_len_bytes": 8}


@pytest.fixture(autouse=True)
def freed() -> Any:
    yield
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a figure past pytest's capture."""

    def show(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)  # noqa: T201

    return show


def config(flash: Path | None = None, *, steps: int = 1, **more: Any) -> TrainConfig:
    data = content.content_root() / CORPUS
    return TrainConfig(data=data, steps=steps, device="cuda", flash=flash, **{**SMALL, **more})


def state_of(ballast_bytes: int = BALLAST_BYTES) -> TrainState:
    return TrainState(config(ballast_bytes=ballast_bytes), torch.device("cuda"))


def overwrite(state: TrainState, value: int) -> None:
    """An update that changes every byte, as the optimizer does with its moments."""
    for name in ("parameters", "exp_avg", "exp_avg_sq", "ballast"):
        state.tensors()[name].fill_(value)


def values_of(stage: Stage, staged: Staged) -> dict[str, Tensor]:
    """The large tensors as they were copied; alias the buffer."""
    image = torch.frombuffer(staged.bytes_of(whole(staged.step)), dtype=torch.uint8)
    views = stage.layout.views(image)
    return {name: views[name] for name in ("parameters", "exp_avg", "exp_avg_sq", "ballast")}


def copied(stage: Stage, state: TrainState) -> Staged:
    staged = stage.copy(state)
    assert staged is not None
    return staged


def busy_for(seconds: float) -> Callable[[], None]:
    """Work that keeps the device, and not its copy engine, for about so long."""
    left, right = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
    out = torch.empty_like(left)
    torch.mm(left, right, out=out)  # cuBLAS takes its workspace
    once_s = timed(lambda: [torch.mm(left, right, out=out) for _ in range(10)]) / 10
    count = max(1, round(seconds / once_s))

    def work() -> None:
        for _ in range(count):
            torch.mm(left, right, out=out)

    return work


def timed(act: Callable[[], object]) -> float:
    """Seconds from an idle device to an idle device."""
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - began_s


def median(act: Callable[[], object]) -> float:
    act()  # to warm up
    return statistics.median(timed(act) for _ in range(ROUNDS))


# An update races with the copy, and loses.


@pytest.mark.parametrize("holds", [True, False], ids=["holds", "forgets"])
def test_an_update_that_is_held_waits_for_the_copy(holds: bool) -> None:
    state = state_of()
    stage = Stage(state)
    torn = 0
    for round_ in range(1, 6):
        overwrite(state, round_)
        staged = copied(stage, state)
        if holds:
            stage.hold_updates()
        overwrite(state, 100 + round_)
        staged.wait()
        torn += any(not bool((v == round_).all()) for v in values_of(stage, staged).values())
        torch.cuda.synchronize()
        staged.release()
    assert (torn == 0) is holds, f"{torn} of 5 copies were torn"


def test_a_copy_starts_after_the_update_before_it() -> None:
    state = state_of(64 << 20)
    stage = Stage(state)
    work = busy_for(0.05)
    for round_ in range(1, 6):
        work()  # the update is still to come when the copy is asked for
        overwrite(state, round_)
        staged = copied(stage, state)
        staged.wait()
        for name, value in values_of(stage, staged).items():
            assert bool((value == round_).all()), name
        staged.release()


def test_both_copies_under_way_are_held_for() -> None:
    state = state_of()
    stage = Stage(state)
    overwrite(state, 1)
    first = copied(stage, state)
    stage.hold_updates()
    overwrite(state, 2)
    second = copied(stage, state)
    stage.hold_updates()
    overwrite(state, 3)
    for staged, expected in ((first, 1), (second, 2)):
        staged.wait()
        assert all(bool((v == expected).all()) for v in values_of(stage, staged).values())
        staged.release()


def test_a_copy_that_is_given_up_has_left_its_buffer_when_that_is_used_again() -> None:
    state = state_of()
    stage = Stage(state)
    for value in (1, 2, 3, 4):
        overwrite(state, value)
        staged = copied(stage, state)
        stage.hold_updates()
        if value < 4:
            staged.release()  # unwritten: it may still be being filled
    staged.wait()
    assert all(bool((v == 4).all()) for v in values_of(stage, staged).values())


# How fast, and what training waits for.


def test_the_device_computes_while_it_copies(show: Callable[[str], None]) -> None:
    state = state_of()
    stage = Stage(state)

    def copy() -> None:
        staged = copied(stage, state)
        staged.wait()
        staged.release()

    copy_s = median(copy)
    work = busy_for(2 * copy_s)
    work_s = median(work)

    def both() -> None:
        staged = copied(stage, state)
        work()
        staged.wait()
        staged.release()

    both_s = median(both)
    hidden = (copy_s + work_s - both_s) / copy_s
    show(
        f"copy {copy_s * 1e3:.1f} ms, computing {work_s * 1e3:.1f} ms, both {both_s * 1e3:.1f} ms:"
        f" {hidden:.0%} of the copy is hidden; training waits {stage.stall_s * 1e3:.2f} ms for it"
    )
    assert hidden > 0.5
    assert stage.stall_s < copy_s / 2


def test_pinned_memory_is_copied_to_faster(show: Callable[[str], None]) -> None:
    state = state_of()
    size = layout_of(state).total_bytes
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    pinned, pageable = host_buffer(size, pin=True), host_buffer(size)
    assert pinned.is_pinned()
    assert not pageable.is_pinned()
    stage = Stage(state)

    def staged() -> None:
        one = copied(stage, state)
        one.wait()
        one.release()

    seconds = {
        "pinned, one tensor": median(lambda: pinned.copy_(source, non_blocking=True)),
        "pageable, one tensor": median(lambda: pageable.copy_(source)),
        "Stage.copy": median(staged),
    }
    rates = {name: size / took_s / 1e9 for name, took_s in seconds.items()}
    show(", ".join(f"{name} {rate:.1f} GB/s" for name, rate in rates.items()))
    assert rates["pinned, one tensor"] > rates["pageable, one tensor"]
    assert rates["Stage.copy"] > 0.7 * rates["pinned, one tensor"]


def test_a_step_with_a_snapshot_waits_for_little_of_its_copy(
    tmp_path: Path, show: Callable[[str], None]
) -> None:
    def steps_s(every: int) -> float:
        took_s: list[float] = []
        train(
            config(tmp_path / str(every), steps=40, digest=False, ballast_bytes=256 << 20,
                   cadence=Cadence(steps=every), keep_snapshots=1, width=256, layers=6, heads=4,
                   seq_len_bytes=64),
            on_step=lambda report: took_s.append(report.seconds),
        )  # fmt: skip
        return statistics.median(took_s[10:])

    pairs = [(steps_s(10**9), steps_s(1)) for _ in range(2)]
    without_s, with_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    show(
        f"a step {without_s * 1e3:.1f} ms, with a snapshot of 256 MiB {with_s * 1e3:.1f} ms"
        f" ({with_s / without_s - 1:+.0%})"
    )
    staging_s = (256 << 20) / 2e9  # at a rate that any pinned copy beats
    assert with_s - without_s < staging_s


# A snapshot is the state, bit for bit.


class LateCopier(CudaCopier):
    """Copies long after it was asked to, as behind a larger copy."""

    def begin(self, pairs: Pairs) -> Callable[[], None]:
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(200_000_000)  # of the device's cycles: a tenth of a second or more
        return super().begin(pairs)


class Held(Trainer):
    """The reference trainer, with a late copier and a state of which each update changes all."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.snapshots.stage = Stage(self.state, LateCopier(self.device))

    def apply(self) -> None:
        super().apply()
        self.state.tensors()["ballast"].add_(1)


class Forgotten(Held):
    def apply(self) -> None:
        self.reduction.gradient_into(self.state.gradient)
        self.state.update()
        self.state.tensors()["ballast"].add_(1)


@pytest.mark.parametrize("kind", [Held, Forgotten])
def test_every_snapshot_of_a_run_is_the_state_it_names(kind: type[Trainer], tmp_path: Path) -> None:
    settings = config(
        tmp_path, steps=8, cadence=Cadence(steps=2), ballast_bytes=16 << 20, keep_snapshots=9
    )
    train(settings, kind=kind)
    state = TrainState(settings, torch.device("cuda"))
    equal: dict[int, bool] = {}
    with Flash(tmp_path, keep=9) as flash:
        for part in flash.parts():
            manifest = flash.manifest(part)
            image = host_buffer(manifest.sums.file_bytes)
            flash.read(part, manifest.sums, image.numpy().data)
            state.load_state_dict(dict(layout_of(state).views(image)))
            equal[part.of.step] = state.digest() == manifest.digest
    assert equal.pop(8), "no update comes behind the last"
    assert equal, "all others were given up"
    assert all(equal.values()) is (kind is Held), equal


def test_what_is_staged_is_the_state_on_the_device_bit_for_bit() -> None:
    state = state_of(12345)
    for tensor in (state.tensors()["parameters"], state.tensors()["exp_avg"]):
        tensor.normal_(generator=torch.Generator("cuda").manual_seed(3))
    stage = Stage(state)
    staged = copied(stage, state)
    staged.wait()
    for name, value in values_of(stage, staged).items():
        expected = state.tensors()[name].cpu()
        assert np.array_equal(value.numpy().view(np.uint8), expected.numpy().view(np.uint8)), name


def test_a_snapshot_taken_from_the_device_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def run(steps: int, place: str) -> TrainResult:
        settings = {"store": tmp_path / place / "store"}
        return train(config(tmp_path / place / "flash", steps=steps, **settings))

    assert run(10, "one").restored == ()
    assert run(20, "one").restored == ((10, "local"),)
    straight = run(20, "other")
    assert run(20, "one").digest == straight.digest


# Ranks that share the device; one of them is killed.


def test_a_killed_rank_comes_back_with_the_same_weights(
    cluster: Any, show: Callable[[str], None]
) -> None:
    cluster.start("a", "--device", "cuda", steps=10**6)
    cluster.start("b", "--device", "cuda", steps=10**6)
    cluster.wait("commit", lambda event: event["world"] == 2 and event["step"] >= 5, timeout_s=60)
    cluster.wait("snapshot", lambda event: event["stage"] == "durable", timeout_s=60)
    killed_s = cluster.kill("b")
    last = max(event["step"] for event in cluster.events("commit"))
    after = cluster.wait("commit", lambda event: event["step"] > last, node="a", timeout_s=60)
    cluster.start("b", "--device", "cuda", steps=10**6)
    healed = cluster.wait("restore", lambda event: event["t"] > killed_s, node="b", timeout_s=60)
    assert healed["source"] == "peer"
    cluster.wait(
        "commit",
        lambda event: event["world"] == 2 and event["step"] > healed["step"],
        node="b",
        timeout_s=60,
    )
    digests = cluster.assert_one_trajectory()
    show(
        f"one of two ranks killed at step {last}: {after['t'] - killed_s:.1f} s to the next commit"
    )
    cluster.kill("a", "b")
    cluster.start("a", "--device", "cuda", steps=10**6)
    cold = cluster.wait("restore", lambda event: event["t"] > after["t"], node="a", timeout_s=60)
    assert cold["source"] == "store"
    begun = cluster.wait(
        "commit", lambda event: event["step"] == cold["step"] + 1 and event["t"] > cold["t"],
        node="a", timeout_s=60,
    )  # fmt: skip
    assert begun["parent"] == digests[cold["step"]]
    cluster.assert_one_trajectory()


def test_the_copier_has_a_stream_of_its_own() -> None:
    copier = CudaCopier(torch.device("cuda"))
    assert copier._stream != torch.cuda.current_stream()
    copier.hold_updates()  # before the first copy there is nothing to wait for
