"""A snapshot is whole or it is none: torn, damaged and unfinished ones are passed over."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from snapshotted import JOB, advance, flash_at, restore, tiny_state, whole, write

from chaosspot.trainer.agreement import agree
from chaosspot.trainer.config import InputError
from chaosspot.trainer.restore import Recovery
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.image import layout_of
from chaosspot.trainer.snapshot.manifest import Manifest, ManifestError
from chaosspot.trainer.snapshot.parts import Part, SnapshotId, complete
from chaosspot.trainer.snapshot.staging import Stage
from chaosspot.trainer.snapshot.store import DirectoryStore
from chaosspot.trainer.snapshot.uploader import Uploader
from chaosspot.trainer.snapshot.worker import Worker


@pytest.fixture
def flash(tmp_path: Path) -> Iterator[Flash]:
    with flash_at(tmp_path / "flash") as flash:
        yield flash


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def steps(keys: list[str]) -> list[int]:
    return [snapshot.step for snapshot in complete(keys)]


def on_flash(flash: Flash) -> list[int]:
    return [part.of.step for part in flash.parts()]


def test_what_is_restored_goes_on_bit_for_bit(flash: Flash) -> None:
    state = advance(tiny_state(), 3)
    write(flash, state)
    found, restored = restore(flash)
    assert found == ("local", 3)
    assert restored.digest() == state.digest()
    assert advance(restored, 2).digest() == advance(state, 2).digest()


def test_the_manifest_tells_where_each_tensor_lies(flash: Flash, tmp_path: Path) -> None:
    state = advance(tiny_state(ballast_bytes=100))
    part = write(flash, state)
    tensors = flash.manifest(part).tensors
    data = (tmp_path / "flash" / part.data_key).read_bytes()
    numbers = {"F32": np.float32, "U8": np.uint8, "I64": np.int64}

    def read(name: str) -> np.ndarray:
        at = tensors[name]
        return np.frombuffer(data[at.start : at.stop], numbers[at.dtype]).reshape(at.shape)

    for name, parameter in state.model.named_parameters():
        assert np.array_equal(read(f"parameters/{name}"), parameter.detach().numpy())
    assert np.array_equal(read("random_state"), torch.get_rng_state().numpy())
    assert read("counters").tolist() == [1, 1]
    assert read("ballast").shape == (100,)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_parts_of_several_ranks_make_the_state(flash: Flash, count: int) -> None:
    state = advance(tiny_state(), 2)
    *others, last = SnapshotId(2, 5, count).parts()
    for part in others:
        write(flash, state, part)
    recovery = Recovery(flash=flash, store=None, job=JOB, stage=Stage(state))
    assert agree([recovery.holdings(0)]) is None, "not all parts are there yet"
    write(flash, state, last)
    found, restored = restore(flash)
    assert found == ("local", 2)
    assert restored.digest() == state.digest()


def test_parts_of_two_generations_are_not_put_together(flash: Flash) -> None:
    state = advance(tiny_state(), 2)
    write(flash, state, Part(SnapshotId(2, 5, 2), 0))
    write(flash, state, Part(SnapshotId(2, 6, 2), 1))
    assert restore(flash)[0] is None


def test_parts_of_different_states_are_not_put_together(flash: Flash) -> None:
    write(flash, advance(tiny_state(), 2), Part(SnapshotId(2, 5, 2), 0))
    write(flash, advance(tiny_state(seed=1), 2), Part(SnapshotId(2, 5, 2), 1))
    write(flash, advance(tiny_state(), 1))
    assert restore(flash)[0] == ("local", 1)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def other_format(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"chaosspot-snapshot/2", b"chaosspot-snapshot/9"))


def resealed(path: Path, old: bytes, new: bytes) -> None:
    """Change the text, and its sum with it."""
    text = path.read_bytes().split(b"\n")[0].replace(old, new)
    path.write_bytes(text + b"\n" + hashlib.blake2b(text, digest_size=16).hexdigest().encode())


def other_step(path: Path) -> None:
    resealed(path, b'"step":2', b'"step":7')


def other_bytes(path: Path) -> None:
    resealed(path, b'"start":0,"sums"', b'"start":8,"sums"')


@pytest.mark.parametrize(
    ("key", "damage"),
    [
        pytest.param("data_key", cut, id="data torn"),
        pytest.param("data_key", flip, id="data: one bit"),
        pytest.param("data_key", Path.unlink, id="data gone"),
        pytest.param("manifest_key", Path.unlink, id="manifest never written"),
        pytest.param("manifest_key", cut, id="manifest torn"),
        pytest.param("manifest_key", lambda path: path.write_text("[]"), id="manifest is none"),
        pytest.param("manifest_key", other_format, id="another format"),
        pytest.param("manifest_key", flip, id="manifest: one bit"),
        pytest.param("manifest_key", other_step, id="another step"),
        pytest.param("manifest_key", other_bytes, id="other bytes of the state"),
    ],
)
def test_a_damaged_snapshot_is_passed_over_for_the_next_older(
    flash: Flash, tmp_path: Path, key: str, damage: Callable[[Path], object]
) -> None:
    state = advance(tiny_state())
    write(flash, state)
    older = state.digest()
    write(flash, advance(state))
    damage(tmp_path / "flash" / getattr(whole(2), key))
    found, restored = restore(flash)
    assert found == ("local", 1)
    assert restored.digest() == older


def test_the_store_steps_in_for_a_damaged_flash(
    flash: Flash, store: DirectoryStore, tmp_path: Path
) -> None:
    state = advance(tiny_state(), 2)
    write(flash, state)
    with Uploader(flash, store, job=JOB, keep=3) as uploader:
        uploader.submit(whole(2))
        assert uploader.wait(10)
    flip(tmp_path / "flash" / whole(2).data_key)
    found, restored = restore(flash, store)
    assert found == ("store", 2)
    assert restored.digest() == state.digest()


def test_a_snapshot_of_another_job_is_never_loaded(flash: Flash, tmp_path: Path) -> None:
    part = write(flash, advance(tiny_state()), job="other")
    with pytest.raises(InputError, match="job 'other', this one is 'job'") as refused:
        restore(flash)
    assert str(tmp_path / "flash" / part.folder) in str(refused.value)


def test_a_snapshot_of_another_model_is_never_loaded(flash: Flash) -> None:
    write(flash, advance(tiny_state(ballast_bytes=64)))
    with pytest.raises(InputError, match="another model: ballast is Entry"):
        restore(flash)


def test_damage_that_came_on_the_way_is_no_damage(flash: Flash, store: DirectoryStore) -> None:
    state = advance(tiny_state())
    write(flash, state)
    with Uploader(flash, store, job=JOB, keep=3) as uploader:
        uploader.submit(whole(1))
        assert uploader.wait(10)
    got = store.get

    def damaged_once(key: str) -> bytes:
        store.get = got
        return bytes([got(key)[0] ^ 1]) + got(key)[1:]

    store.get = damaged_once
    with flash_at(flash.root.with_name("new")) as new:
        found, restored = restore(new, store)
    assert found == ("store", 1)
    assert restored.digest() == state.digest()


@pytest.mark.parametrize("key", ["data_key", "manifest_key"])
def test_what_is_damaged_in_the_store_is_named(
    flash: Flash, store: DirectoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    write(flash, advance(tiny_state()))
    with Uploader(flash, store, job=JOB, keep=3) as uploader:
        uploader.submit(whole(1))
        assert uploader.wait(10)
    damaged = getattr(whole(1), key)
    flip(tmp_path / "store" / damaged)
    with flash_at(flash.root.with_name("new")) as new:
        found, _ = restore(new, store)
    assert found is None
    assert f"passed over: part 0 of step 1, generation 1, in 1 part: {damaged}: " in caplog.text


class Listless(DirectoryStore):
    """Lists when it is told to, and may fail to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.may = threading.Event()
        self.error: OSError | None = None
        self.asked = 0

    def keys(self) -> list[str]:
        self.asked += 1
        assert self.may.wait(10)
        if self.error:
            raise self.error
        return super().keys()


def test_a_store_that_hangs_is_not_waited_for_and_asked_once(
    flash: Flash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaosspot.trainer.restore._LOOK_S", 0.01)
    store = Listless(tmp_path / "store")
    with Recovery(flash=flash, store=store, job=JOB, stage=Stage(tiny_state())) as recovery:
        assert recovery.holdings(0).blind
        for _ in range(3):
            recovery.look()
            assert recovery.holdings(0).blind
        assert store.asked == 1
        monkeypatch.setattr("chaosspot.trainer.restore._LOOK_S", 10.0)
        store.may.set()
        recovery.look()
        assert not recovery.holdings(0).blind


def test_a_store_that_cannot_list_in_time_is_asked_again(flash: Flash, tmp_path: Path) -> None:
    store = Listless(tmp_path / "store")
    store.error = TimeoutError("read timed out")
    store.may.set()
    with Recovery(flash=flash, store=store, job=JOB, stage=Stage(tiny_state())) as recovery:
        recovery.look()
        assert recovery.holdings(0).blind
        store.error = None
        recovery.look()
        assert not recovery.holdings(0).blind
    assert store.asked == 2


def test_what_is_damaged_is_not_offered_again(flash: Flash, tmp_path: Path) -> None:
    write(flash, advance(tiny_state()))
    flip(tmp_path / "flash" / whole(1).data_key)
    recovery = Recovery(flash=flash, store=None, job=JOB, stage=Stage(tiny_state()))
    reading = agree([recovery.holdings(0)])
    assert reading is not None
    assert not recovery.read(reading, 0).good
    assert not recovery.holdings(0).flash


class FullDisk(RealDisk):
    """Takes ``left`` bytes more."""

    left = 1 << 30
    one_at_a_time = threading.Lock()

    def reserve(self, descriptor: int, length: int) -> None:
        """As on a file system that cannot."""

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        with self.one_at_a_time:
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = super().pwrite(descriptor, data[: self.left], offset)
            self.left -= written
            return written


@pytest.mark.parametrize("left", [0, 4096, 3 * 4096], ids="{} bytes left".format)
def test_a_full_disk_leaves_the_older_snapshot(tmp_path: Path, left: int) -> None:
    disk = FullDisk()
    state = advance(tiny_state())
    with flash_at(tmp_path / "flash", disk=disk) as flash:
        write(flash, state)
        older = state.digest()
        disk.left = left
        with pytest.raises(OSError, match="No space"):
            write(flash, advance(state))
        assert on_flash(flash) == [1]
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
    assert on_flash(flash) == [3, 4, 5]
    write(flash, advance(state), in_use=(whole(3),))
    assert on_flash(flash) == [3, 4, 5, 6]


def test_what_a_crash_left_half_written_is_swept(flash: Flash, tmp_path: Path) -> None:
    state = advance(tiny_state())
    write(flash, state)
    (tmp_path / "flash" / whole(1).manifest_key).unlink()
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
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append("value" if path.endswith(".tmp") else path)
        fsync(descriptor)

    def noted_rename(old: Path, new: Path) -> None:
        calls.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    root = tmp_path.resolve() / "store"
    store.put("a/b", b"new")
    assert calls[:2] == ["value", "rename"]
    assert calls[2:] == [str(path) for path in (root / "a", root, *root.parents)]
    calls.clear()
    store.put("a/b", b"newer")
    assert calls == ["value", "rename", str(root / "a"), str(root)]


def test_store_keys(store: DirectoryStore) -> None:
    assert store.keys() == []
    store.put(whole(5).data_key, b"d")
    store.put(whole(5).manifest_key, memoryview(b"m"))
    store.put("step-5/manifest.json", b"not ours")
    store.put("step-0000000006/generation-0000000001/part-0001-of-0001/manifest.json", b"nor this")
    assert steps(store.keys()) == [5]
    assert store.get(whole(5).manifest_key) == b"m"
    with pytest.raises(FileNotFoundError):
        store.get("nothing")
    store.delete(whole(5).manifest_key)
    store.delete(whole(5).manifest_key)
    assert steps(store.keys()) == []


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
        if self.damaging and key.endswith(".bin"):
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
        uploader.submit(whole(1))
        assert uploader.wait(10)
    assert puts.order == [whole(1).data_key, whole(1).manifest_key]


def test_a_slow_store_delays_no_one_and_gets_the_newest_next(flash: Flash, puts: Puts) -> None:
    state = tiny_state()
    puts.go_on.clear()
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        for step in (1, 2, 3):
            write(flash, advance(state))
            uploader.submit(whole(step))
            if step == 1:
                assert puts.entered.wait(10)
                assert uploader.in_use == (whole(1),)
        assert not uploader.wait(0.05)
        puts.go_on.set()
        assert uploader.wait(10)
    assert steps(puts.keys()) == [1, 3], "the outdated one was uploaded too"


@pytest.mark.parametrize("how", ["broken", "damaging"])
def test_a_failed_upload_is_soft_and_leaves_nothing_that_looks_complete(
    flash: Flash, puts: Puts, how: str, caplog
) -> None:
    state = advance(tiny_state())
    write(flash, state)
    setattr(puts, how, True)
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        uploader.submit(whole(1))
        assert uploader.wait(10)
        assert steps(puts.keys()) == []
        assert "upload failed, training goes on" in caplog.text
        setattr(puts, how, False)
        uploader.submit(whole(1))
        assert uploader.wait(10)
    assert steps(puts.keys()) == [1]


def test_damage_on_flash_is_not_carried_into_the_store(
    flash: Flash, puts: Puts, tmp_path: Path
) -> None:
    write(flash, advance(tiny_state()))
    flip(tmp_path / "flash" / whole(1).data_key)
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        uploader.submit(whole(1))
        assert uploader.wait(10)
    assert puts.order == []


def test_the_store_keeps_the_newest(flash: Flash, puts: Puts) -> None:
    state = tiny_state()
    with Uploader(flash, puts, job=JOB, keep=2) as uploader:
        for step in (1, 2, 3):
            write(flash, advance(state))
            uploader.submit(whole(step))
            assert uploader.wait(10)
    assert steps(puts.keys()) == [2, 3]


def test_a_snapshot_is_durable_when_its_last_part_is(
    flash: Flash, puts: Puts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOSSPOT_EVENTS", str(tmp_path))
    monkeypatch.setattr("chaosspot.probe._file", None)
    state = advance(tiny_state())
    parts = SnapshotId(1, 4, 2).parts()
    with Uploader(flash, puts, job=JOB, keep=3) as uploader:
        for part in parts:
            write(flash, state, part)
            uploader.submit(part)
            assert uploader.wait(10)
    (file,) = tmp_path.glob("*.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    (durable,) = [e for e in events if e["event"] == "snapshot"]
    assert (durable["stage"], durable["step"], durable["shards"]) == ("durable", 1, 2)
    assert durable["bytes"] == layout_of(state).total_bytes
    assert sorted(durable["objects"]) == puts.keys()


def test_a_manifest_says_what_is_wrong(flash: Flash) -> None:
    manifest = flash.manifest(write(flash, advance(tiny_state())))
    assert Manifest.decode(manifest.encode(), job=JOB) == manifest
    with pytest.raises(ManifestError, match="job 'job', this one is 'other'"):
        Manifest.decode(manifest.encode(), job="other")
    with pytest.raises(ManifestError, match="3 bytes"):
        manifest.check(b"abc")
    newer = manifest.encode().replace(b"snapshot/2", b"snapshot/11")
    with pytest.raises(ManifestError, match=r"'chaosspot-snapshot/11'.*newer version"):
        Manifest.decode(newer)
    with pytest.raises(ManifestError, match="format is 'chaosspot-snapshot/1'"):
        Manifest.decode(b'{"format": "chaosspot-snapshot/1"}\n')
