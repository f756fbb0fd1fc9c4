"""Host copies of the state: none is torn, none grows, and training waits for the copy alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from snapshotted import advance, restore, tiny_state, whole
from torch import Tensor

from chaosspot import content
from chaosspot.trainer import TrainConfig, train
from chaosspot.trainer.loop import Trainer
from chaosspot.trainer.plan import Cadence
from chaosspot.trainer.snapshot import flash as flash_module
from chaosspot.trainer.snapshot import keeper as keeper_module
from chaosspot.trainer.snapshot import staging
from chaosspot.trainer.snapshot.direct import Sums
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.image import layout_of
from chaosspot.trainer.snapshot.keeper import SnapshotKeeper
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.parts import Part, complete
from chaosspot.trainer.snapshot.staging import Pairs, Stage, Staged
from chaosspot.trainer.snapshot.store import DirectoryStore
from chaosspot.trainer.state import TrainState

JOB = "job"
DEADLINE_S = 20.0


class LateCopier:
    """Copies as late as a device may: when an update is held for it, or when told to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: list[tuple[list[tuple[Tensor, Tensor]], threading.Event]] = []

    def begin(self, pairs: Pairs) -> Callable[[], None]:
        done = threading.Event()
        with self._lock:
            self._begun.append((list(pairs), done))

        def wait() -> None:
            assert done.wait(DEADLINE_S), "nobody let the copy be made"

        return wait

    def hold_updates(self) -> None:
        self.copy()

    def copy(self) -> None:
        with self._lock:
            for pairs, done in self._begun:
                for to, source in pairs:
                    to.copy_(source)
                done.set()
            self._begun.clear()


class Gate(RealDisk):
    """A drive that writes nothing until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open_now = threading.Event()

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        self.reached.set()
        assert self.open_now.wait(DEADLINE_S), "nobody opened the drive"
        return super().pwrite(descriptor, data, offset)


def image(state: TrainState) -> bytes:
    """What a complete copy of the state has to be."""
    staged = Stage(state).copy(state)
    assert staged is not None
    return bytes(content_of(staged))


def content_of(staged: Staged) -> memoryview:
    return staged.bytes_of(whole(staged.step))


def address(staged: Staged) -> int:
    return int(np.frombuffer(content_of(staged), np.uint8).ctypes.data)


def copied(stage: Stage, state: TrainState) -> Staged:
    staged = stage.copy(state)
    assert staged is not None
    return staged


# What is guarded is copied before it is overwritten.


@pytest.mark.parametrize("holds", [True, False], ids=["holds", "forgets"])
def test_an_update_that_is_held_leaves_the_copy_whole(holds: bool) -> None:
    copier = LateCopier()
    state = advance(tiny_state(ballast_bytes=5000))
    stage, expected = Stage(state, copier), image(state)
    staged = copied(stage, state)
    if holds:
        stage.hold_updates()
    advance(state)
    copier.copy()
    staged.wait()
    assert (content_of(staged) == expected) is holds
    assert image(state) != expected


def test_both_copies_under_way_are_held_for() -> None:
    copier = LateCopier()
    state = advance(tiny_state())
    stage = Stage(state, copier)
    first, second = copied(stage, state), copied(stage, state)
    expected = image(state)
    stage.hold_updates()
    advance(state)
    assert content_of(first) == content_of(second) == expected


class Watched(Trainer):
    """The reference trainer on a device that copies as late as it may."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.copier = LateCopier()
        self.snapshots.stage = Stage(self.state, self.copier)

    def apply(self) -> None:
        self.update()
        self.copier.copy()  # what no update was held for comes now
        assert self.snapshots.settle(DEADLINE_S)  # none is given up for the next

    def update(self) -> None:
        super().apply()

    def finish(self) -> Any:
        self.copier.copy()
        return super().finish()


class Forgets(Watched):
    def update(self) -> None:
        self.reduction.gradient_into(self.state.gradient)
        self.state.update()


def small_run(flash: Path, **fields: Any) -> TrainConfig:
    return TrainConfig(
        data=content.content_root() / "fixtures/corpus/apache-2.0.txt",
        flash=flash,
        width=16,
        layers=1,
        heads=2,
        seq_len_bytes=8,
        **fields,
    )


@pytest.mark.parametrize(("kind", "torn"), [(Watched, []), (Forgets, [2, 4])])
def test_the_loop_holds_each_update_until_the_copy_has_passed(
    kind: type[Trainer], torn: list[int], tmp_path: Path
) -> None:
    config = small_run(tmp_path, steps=6, cadence=Cadence(steps=2))
    train(config, kind=kind)
    state = TrainState(config, torch.device("cpu"))
    found: dict[int, bool] = {}
    with Flash(tmp_path, keep=3) as flash:
        for part in flash.parts():
            manifest = flash.manifest(part)
            data = np.empty(manifest.sums.file_bytes, np.uint8)
            flash.read(part, manifest.sums, data.data)
            state.load_state_dict(dict(layout_of(state).views(torch.from_numpy(data))))
            found[part.of.step] = state.digest() == manifest.digest
    assert found == {step: step not in torn for step in (2, 4, 6)}


# Two buffers, and never more.


def test_there_are_two_buffers_that_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state = tiny_state(ballast_bytes=100_000)
    stage = Stage(state)

    def grow(*_: object, **__: object) -> Tensor:
        raise AssertionError("another buffer is made")

    monkeypatch.setattr(staging, "host_buffer", grow)
    first, second = copied(stage, state), copied(stage, state)
    addresses = {address(first), address(second)}
    assert len(addresses) == 2
    assert stage.copy(state) is None
    for staged in (second, first):
        staged.release()
        for _ in range(5):
            advance(state)
            again = copied(stage, state)
            assert address(again) == address(staged)
            assert stage.copy(state) is None
            again.release()
        copied(stage, state)


def test_a_buffer_is_page_aligned_and_in_memory() -> None:
    state = tiny_state(ballast_bytes=3 * 4096 + 1)
    staged = copied(Stage(state), state)
    assert address(staged) % 4096 == 0


def test_a_copy_that_is_released_is_waited_for_before_its_buffer_is_used_again() -> None:
    copier = LateCopier()
    state = tiny_state()
    stage = Stage(state, copier)
    given_up, kept = copied(stage, state), copied(stage, state)
    with ThreadPoolExecutor(1) as thread:
        released = thread.submit(given_up.release)
        with pytest.raises(TimeoutError):
            released.result(timeout=0.2)
        assert stage.copy(state) is None
        copier.copy()
        released.result(timeout=DEADLINE_S)
    assert address(copied(stage, state)) == address(given_up) != address(kept)


# The keeper, whose disk is slow.


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(flash_module, "RealDisk", lambda: gate)
    return gate


@pytest.fixture
def keeper_of(tmp_path: Path, gate: Gate) -> Iterator[Callable[[TrainState], SnapshotKeeper]]:
    config = TrainConfig(data=Path("unused"), steps=1, flash=tmp_path, keep_snapshots=9)
    with ExitStack() as stack:
        stack.callback(gate.open_now.set)

        def make(state: TrainState) -> SnapshotKeeper:
            return SnapshotKeeper(config, state, JOB, stack)

        yield make
        gate.open_now.set()


def take(keeper: SnapshotKeeper, state: TrainState) -> None:
    """In another thread, so that one that blocks is seen to."""
    with ThreadPoolExecutor(1) as thread:
        part = whole(state.step)
        thread.submit(keeper.take, part, digest=state.digest(), upload=False).result(DEADLINE_S)


def test_a_disk_that_does_not_come_back_stops_no_training(
    keeper_of: Callable[[TrainState], SnapshotKeeper], gate: Gate
) -> None:
    state = advance(tiny_state())
    keeper = keeper_of(state)
    for _ in range(6):
        take(keeper, state)
        advance(state)
    assert gate.reached.wait(DEADLINE_S)
    assert not keeper.settle(0.0)


def test_while_the_disk_is_behind_snapshots_are_put_off_and_none_is_given_up(
    gate: Gate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[int] = []

    class Noted(Trainer):
        def snapshot(self, part: Part, *, upload: bool) -> None:
            taken.append(part.of.step)
            super().snapshot(part, upload=upload)

        def vote(self, step: int) -> None:
            if step == 7:
                gate.open_now.set()
                assert self.snapshots.settle(DEADLINE_S)
            elif step == 3:  # the first is being written, so that the next one waits
                assert gate.reached.wait(DEADLINE_S)
            super().vote(step)

    cadence = Cadence(steps=2)
    train(small_run(tmp_path, steps=8, cadence=cadence, keep_snapshots=9), kind=Noted)
    assert taken == [2, 4, 7, 8]
    said = [record.getMessage() for record in caplog.records if "snapshot" in record.getMessage()]
    assert said == ["snapshot of step 6 put off: disks of 1 of 1 ranks are behind"]
    with Flash(tmp_path, keep=9) as flash:
        assert [part.of.step for part in flash.parts()] == taken


class GatedStore(DirectoryStore):
    reached, open_now = threading.Event(), threading.Event()

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.reached.set()
        assert self.open_now.wait(DEADLINE_S), "nobody opened the store"
        super().put(key, value)


def test_while_a_part_is_uploaded_no_other_is_and_none_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "DirectoryStore", GatedStore)
    taken: dict[int, bool] = {}

    class Noted(Trainer):
        def snapshot(self, part: Part, *, upload: bool) -> None:
            taken[part.of.step] = upload
            super().snapshot(part, upload=upload)

        def vote(self, step: int) -> None:
            if step == 3:
                assert GatedStore.reached.wait(DEADLINE_S)
            elif step == 7:
                GatedStore.open_now.set()
                assert self.snapshots.settle(DEADLINE_S)
            super().vote(step)

    config = small_run(tmp_path / "flash", steps=9, cadence=Cadence(steps=2), keep_snapshots=9)
    train(replace(config, store=tmp_path / "store"), kind=Noted)
    assert taken == {2: True, 4: False, 6: False, 8: True, 9: True}
    durable = {of.step for of in complete(DirectoryStore(tmp_path / "store").keys())}
    assert {2, 9} <= durable <= {2, 8, 9}  # the last may come before the one before it


def test_a_third_snapshot_takes_the_place_of_the_one_that_waits(
    keeper_of: Callable[[TrainState], SnapshotKeeper],
    gate: Gate,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = advance(tiny_state())
    keeper = keeper_of(state)
    take(keeper, state)
    assert gate.reached.wait(DEADLINE_S)
    digests = {state.step: state.digest()}
    for _ in range(3):
        advance(state)
        take(keeper, state)
    digests[state.step] = state.digest()
    given_up = [record.getMessage() for record in caplog.records]
    assert given_up == [f"snapshot of step {step} given up: flash is slow" for step in (2, 3)]
    assert keeper.stage.copy(state) is None  # one is written, one waits
    gate.open_now.set()
    assert keeper.settle(DEADLINE_S)
    free = [keeper.stage.copy(state) for _ in range(3)]
    assert [staged is not None for staged in free] == [True, True, False]
    with Flash(tmp_path, keep=9) as flash:
        assert [part.of.step for part in flash.parts()] == [1, 4]
        assert {p.of.step: flash.manifest(p).digest for p in flash.parts()} == digests
        tier, restored = restore(flash)
        assert (tier, restored.digest()) == (("local", 4), digests[4])


def test_a_write_that_fails_gives_its_buffer_back(
    keeper_of: Callable[[TrainState], SnapshotKeeper], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open_now.set()
    state = advance(tiny_state())
    keeper = keeper_of(state)

    def full(*_: object) -> Manifest:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Flash, "write", full)
    for _ in range(4):
        advance(state)
        take(keeper, state)
        assert keeper.settle(DEADLINE_S)
    assert [keeper.stage.copy(state) is not None for _ in range(3)] == [True, True, False]


def test_what_is_written_waits_for_its_copy(
    keeper_of: Callable[[TrainState], SnapshotKeeper], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open_now.set()
    state = advance(tiny_state())
    keeper = keeper_of(state)
    copier = LateCopier()
    keeper.stage = Stage(state, copier)
    expected, written, began = image(state), [], threading.Event()
    real = Flash.write

    def write(
        self: Flash, part: Part, data: memoryview, describe: Callable[[Sums], Manifest]
    ) -> Manifest:
        began.set()
        written.append(bytes(data))
        return real(self, part, data, describe)

    monkeypatch.setattr(Flash, "write", write)
    take(keeper, state)
    assert not began.wait(0.2)
    copier.copy()
    assert keeper.settle(DEADLINE_S)
    assert written == [expected]
