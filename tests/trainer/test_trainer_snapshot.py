"""A snapshot is whole or it is none: torn, damaged and unfinished ones are passed over."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from snapshotted import JOB, advance, tiny_state, write

from chaosspot.trainer.restore import Recovery
from chaosspot.trainer.snapshot import flash as flash_module
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import (
    Manifest,
    ManifestError,
    complete_steps,
    data_key,
    manifest_key,
)
from chaosspot.trainer.snapshot.staging import Staged
from chaosspot.trainer.snapshot.store import DirectoryStore
from chaosspot.trainer.snapshot.uploader import Uploader
from chaosspot.trainer.snapshot.worker import Worker
from chaosspot.trainer.state import TrainState


@pytest.fixture
def flash(tmp_path: Path) -> Flash:
    return Flash(tmp_path / "flash", keep=3)


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def restore(
    flash: Flash, store: DirectoryStore | None = None, current_step: int = 0
) -> tuple[tuple[str, int] | None, TrainState]:
    state = tiny_state(seed=9)
    recovery = Recovery(local=flash.files, store=store, job=JOB)
    recovery.look()
    found = recovery.load(state, recovery.candidates(current_step))
    return (found.tier, found.step) if found else None, state


def test_what_is_restored_goes_on_bit_for_bit(flash: Flash) -> None:
    state = advance(tiny_state(), 3)
    write(flash, state)
    found, restored = restore(flash)
    assert found == ("local", 3)
    assert restored.digest() == state.digest()
    assert advance(restored, 2).digest() == advance(state, 2).digest()


def test_the_file_is_safetensors_with_a_name_for_every_parameter(
    flash: Flash, tmp_path: Path
) -> None:
    state = advance(tiny_state())
    manifest = write(flash, state)
    path = tmp_path / "flash" / data_key(1)
    assert path.stat().st_size == manifest.data_bytes
    tensors = safetensors.torch.load_file(path)
    for name, parameter in state.model.named_parameters():
        assert torch.equal(tensors[f"parameters/{name}"], parameter)
    assert torch.equal(tensors["random_state"], torch.get_rng_state())


def test_the_copy_does_not_follow_the_state(flash: Flash) -> None:
    state = advance(tiny_state())
    staged = Staged(state)
    staged.copy(state)
    digest = state.digest()
    manifest = staged.manifest(world=1, generation=1, job=JOB, digest=digest)
    advance(state, 4)
    flash.write(staged, manifest)
    found, restored = restore(flash)
    assert found == ("local", 1)
    assert restored.digest() == digest


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def other_format(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": "chaosspot-snapshot/9"}))


def other_step(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": 7}))


@pytest.mark.parametrize(
    ("key", "damage"),
    [
        pytest.param(data_key, cut, id="data torn"),
        pytest.param(data_key, flip, id="data: one bit"),
        pytest.param(data_key, Path.unlink, id="data gone"),
        pytest.param(manifest_key, Path.unlink, id="manifest never written"),
        pytest.param(manifest_key, cut, id="manifest torn"),
        pytest.param(manifest_key, lambda path: path.write_text("[]"), id="manifest is none"),
        pytest.param(manifest_key, other_format, id="another format"),
        pytest.param(manifest_key, other_step, id="another step"),
    ],
)
def test_a_damaged_snapshot_is_passed_over_for_the_next_older(
    flash: Flash, tmp_path: Path, key: Callable[[int], str], damage: Callable[[Path], object]
) -> None:
    state = advance(tiny_state())
    write(flash, state)
    older = state.digest()
    write(flash, advance(state))
    damage(tmp_path / "flash" / key(2))
    found, restored = restore(flash)
    assert found == ("local", 1)
    assert restored.digest() == older


def test_the_store_steps_in_for_a_damaged_flash(
    flash: Flash, store: DirectoryStore, tmp_path: Path
) -> None:
    state = advance(tiny_state(), 2)
    write(flash, state)
    with Uploader(flash, store, job=JOB, keep=3) as uploader:
        uploader.submit(2)
        assert uploader.wait(10)
    flip(tmp_path / "flash" / data_key(2))
    found, restored = restore(flash, store)
    assert found == ("store", 2)
    assert restored.digest() == state.digest()


def test_a_snapshot_of_another_job_is_never_loaded(flash: Flash) -> None:
    write(flash, advance(tiny_state()), job="other")
    found, state = restore(flash)
    assert found is None
    assert state.step == 0


def test_what_is_damaged_is_not_offered_again(flash: Flash, tmp_path: Path) -> None:
    write(flash, advance(tiny_state()))
    flip(tmp_path / "flash" / data_key(1))
    recovery = Recovery(local=flash.files, store=None, job=JOB)
    recovery.look()
    assert recovery.load(tiny_state(), recovery.candidates(0)) is None
    recovery.look()
    assert recovery.candidates(0) == []


def test_a_full_disk_leaves_the_older_snapshot(
    flash: Flash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = advance(tiny_state())
    write(flash, state)
    older = state.digest()
    real_write, left = os.write, 3000

    def full(descriptor: int, data: bytes) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_write(descriptor, data[:left])
        left -= written
        return written

    monkeypatch.setattr(flash_module.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write(flash, advance(state))
    monkeypatch.undo()
    assert flash.steps() == [1]
    assert sorted(os.listdir(tmp_path / "flash")) == ["step-0000000001"]
    found, restored = restore(flash)
    assert found == ("local", 1)
    assert restored.digest() == older


def test_a_really_full_disk_is_a_soft_error(flash: Flash, caplog) -> None:
    def fill() -> None:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    done = threading.Event()
    with Worker("flash") as worker:
        worker.submit(fill)
        assert worker.wait_idle(5)
        worker.submit(done.set)
        assert done.wait(5), "the worker died with the job"
    assert worker.failures == 1
    assert "No space" in caplog.text


def test_a_bug_in_a_job_does_not_end_the_worker(caplog) -> None:
    done = threading.Event()
    with Worker("flash") as worker:
        worker.submit(lambda: {}["bug"])
        assert worker.wait_idle(5)
        worker.submit(done.set)
        assert done.wait(5)
    assert "KeyError" in caplog.text


def test_only_the_newest_snapshots_are_kept_and_those_in_use(flash: Flash) -> None:
    state = tiny_state()
    for _ in range(5):
        write(flash, advance(state))
    assert flash.steps() == [3, 4, 5]
    staged = Staged(state)
    staged.copy(advance(state))
    manifest = staged.manifest(world=1, generation=1, job=JOB, digest=None)
    flash.write(staged, manifest, in_use=[3])
    assert flash.steps() == [3, 4, 5, 6]


def test_what_a_crash_left_half_written_is_swept(flash: Flash, tmp_path: Path) -> None:
    state = advance(tiny_state())
    write(flash, state)
    (tmp_path / "flash" / manifest_key(1)).unlink()
    write(flash, advance(state))
    assert os.listdir(tmp_path / "flash") == ["step-0000000002"]


CRASHES = ["write", "fsync", "rename"]


@pytest.mark.parametrize("fails", CRASHES)
def test_the_store_shows_the_old_value_or_the_new_one(
    store: DirectoryStore, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a/b", b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "disk on fire")

    if fails == "write":
        (tmp_path / "store" / "a").chmod(0o500)
        if os.geteuid() == 0:
            monkeypatch.setattr("builtins.open", fail)
    else:
        monkeypatch.setattr(os, fails, fail)
    with pytest.raises(OSError, match=r"disk on fire|denied"):
        store.put("a/b", b"new")
    monkeypatch.undo()
    assert store.get("a/b") == b"old"
    assert store.keys() == ["a/b"]
    assert os.listdir(tmp_path / "store" / "a") == ["b"]


def test_the_value_is_synced_before_it_gets_its_name_and_the_name_after(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def noted(*args: object, name: str = name, real: Callable[..., None] = real) -> None:
            calls.append(name)
            real(*args)

        monkeypatch.setattr(os, name, noted)
    store.put("a/b", b"new")
    assert calls[:2] == ["fsync", "rename"]
    assert calls[2:] == ["fsync", "fsync"]


def test_store_keys(store: DirectoryStore) -> None:
    assert store.keys() == []
    store.put(data_key(5), b"d")
    store.put(manifest_key(5), memoryview(b"m"))
    store.put("step-5/manifest.json", b"not ours")
    assert complete_steps(store.keys()) == [5]
    assert store.get(manifest_key(5)) == b"m"
    with pytest.raises(FileNotFoundError):
        store.get("nothing")
    store.delete(manifest_key(5))
    store.delete(manifest_key(5))
    assert complete_steps(store.keys()) == []


class Puts(DirectoryStore):
    """A store that notes the order of puts and can be held or broken."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.order: list[str] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.broken = False
        self.damaging = False

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.entered.set()
        assert self.go_on.wait(10)
        if self.broken:
            raise OSError("no route to host")
        if self.damaging and key.endswith(".safetensors"):
            value = bytes([value[0] ^ 1]) + bytes(value[1:])
        self.order.append(key)
        super().put(key, value)


@pytest.fixture
def puts(tmp_path: Path) -> Iterator[Puts]:
    store = Puts(tmp_path / "puts")
    yield store
    store.go_on.set()


def test_the_manifest_is_uploaded_last(flash: Flash, puts: Puts) -> None:
    write(flash, advance(tiny_state()))
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        uploader.submit(1)
        assert uploader.wait(10)
    assert puts.order == [data_key(1), manifest_key(1)]


def test_a_slow_store_delays_no_one_and_gets_the_newest_next(flash: Flash, puts: Puts) -> None:
    state = tiny_state()
    puts.go_on.clear()
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        for step in (1, 2, 3):
            write(flash, advance(state))
            uploader.submit(step)
            if step == 1:
                assert puts.entered.wait(10)
                assert uploader.in_use == (1,)
        assert not uploader.wait(0.05)
        puts.go_on.set()
        assert uploader.wait(10)
    assert complete_steps(puts.keys()) == [1, 3], "the outdated one was uploaded too"


@pytest.mark.parametrize("how", ["broken", "damaging"])
def test_a_failed_upload_is_soft_and_leaves_nothing_that_looks_complete(
    flash: Flash, puts: Puts, how: str, caplog
) -> None:
    state = advance(tiny_state())
    write(flash, state)
    setattr(puts, how, True)
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        uploader.submit(1)
        assert uploader.wait(10)
        assert complete_steps(puts.keys()) == []
        assert "upload failed, training goes on" in caplog.text
        setattr(puts, how, False)
        uploader.submit(1)
        assert uploader.wait(10)
    assert complete_steps(puts.keys()) == [1]


def test_damage_on_flash_is_not_carried_into_the_store(
    flash: Flash, puts: Puts, tmp_path: Path
) -> None:
    write(flash, advance(tiny_state()))
    flip(tmp_path / "flash" / data_key(1))
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        uploader.submit(1)
        assert uploader.wait(10)
    assert puts.order == []


def test_the_store_keeps_the_newest(flash: Flash, puts: Puts) -> None:
    state = tiny_state()
    with Uploader(flash, puts, job=JOB, keep=2) as uploader:
        for step in (1, 2, 3):
            write(flash, advance(state))
            uploader.submit(step)
            assert uploader.wait(10)
    assert complete_steps(puts.keys()) == [2, 3]


def test_a_manifest_says_what_is_wrong() -> None:
    state = tiny_state()
    staged = Staged(state)
    staged.copy(state)
    manifest = staged.manifest(world=1, generation=1, job=JOB, digest=None)
    assert Manifest.decode(manifest.encode(), job=JOB) == manifest
    with pytest.raises(ManifestError, match="job 'job', this one is 'other'"):
        Manifest.decode(manifest.encode(), job="other")
    with pytest.raises(ManifestError, match="3 bytes"):
        manifest.check(b"abc")
