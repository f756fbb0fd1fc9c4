"""Damage to a file of a snapshot: always found, said by name, and recovered from."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snapshotted import BLOCK_BYTES, JOB, advance, flash_at, restore, tiny_state, write

from chaosspot.trainer.snapshot.flash import Flash
from chaosspot.trainer.snapshot.manifest import ManifestError
from chaosspot.trainer.snapshot.parts import SnapshotId
from chaosspot.trainer.snapshot.reading import DamageError

OLDER, NEWER = SnapshotId(1, 1, 2), SnapshotId(2, 1, 2)
DATA = [part.data_key for part in NEWER.parts()]
MANIFESTS = [part.manifest_key for part in NEWER.parts()]


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Two snapshots, of which the newer one is damaged and mended again."""

    flash: Flash
    older: str
    """Digest of the older state."""
    files: dict[str, bytes] = field(repr=False)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    root = tmp_path_factory.mktemp("flash")
    state = advance(tiny_state())
    with flash_at(root) as flash:
        older = state.digest()
        for of in (OLDER, NEWER):
            for part in of.parts():
                write(flash, state, part)
            advance(state)
        files = {key: (root / key).read_bytes() for key in (*DATA, *MANIFESTS)}
        yield Taken(flash=flash, older=older, files=files)


@st.composite
def damages(draw: st.DrawFn, keys: list[str]) -> tuple[str, int, int]:
    """A file, where in it as a share of 1, and the bits that are flipped there; 0: it is cut."""
    at = draw(st.integers(0, (1 << 30) - 1))
    return draw(st.sampled_from(keys)), at, draw(st.integers(0, 255))


def damaged(data: bytes, at: int, mask: int) -> tuple[bytes, int]:
    """The file's new content, and the first byte that is not what it was."""
    at %= len(data)
    return data[:at] + (bytes([data[at] ^ mask]) + data[at + 1 :] if mask else b""), at


EACH_MENDS = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@EACH_MENDS
@given(damages(DATA))
def test_damaged_data_is_named_with_its_bytes_and_passed_over(
    taken: Taken, caplog: pytest.LogCaptureFixture, damage: tuple[str, int, int]
) -> None:
    key, at, mask = damage
    path = taken.flash.root / key
    data, first = damaged(taken.files[key], at, mask)
    caplog.clear()
    path.write_bytes(data)
    try:
        found, state = restore(taken.flash)
        part = NEWER.parts()[DATA.index(key)]
        manifest = taken.flash.manifest(part)
        with pytest.raises(DamageError, match=re.escape(str(path))) as caught:
            taken.flash.read(part, manifest.sums, memoryview(bytearray(manifest.sums.file_bytes)))
        with pytest.raises(ManifestError, match=r"data (has|from byte) \d+"):
            manifest.check(data)
    finally:
        path.write_bytes(taken.files[key])
    assert found == ("local", 1)
    assert state.digest() == taken.older
    assert caught.value.start <= first < caught.value.end
    assert caught.value.end - caught.value.start <= (
        BLOCK_BYTES if mask else len(path.read_bytes())
    )
    warned = [text.getMessage() for text in caplog.records if text.levelno == logging.WARNING]
    named = [text for text in warned if str(path) in text]
    assert len(named) == 1, warned
    assert f"bytes {caught.value.start} to {caught.value.end}" in named[0]


@EACH_MENDS
@given(damages(MANIFESTS))
def test_a_damaged_manifest_is_named_and_passed_over(
    taken: Taken, caplog: pytest.LogCaptureFixture, damage: tuple[str, int, int]
) -> None:
    key, at, mask = damage
    path = taken.flash.root / key
    data, _ = damaged(taken.files[key], at, mask)
    caplog.clear()
    path.write_bytes(data)
    try:
        part = NEWER.parts()[MANIFESTS.index(key)]
        if data + b"\n" == taken.files[key]:  # nothing is lost with the end of the last line
            assert taken.flash.manifest(part, job=JOB).part == part
            return
        found, state = restore(taken.flash)
        with pytest.raises(ManifestError, match=re.escape(str(path))):
            taken.flash.manifest(part)
    finally:
        path.write_bytes(taken.files[key])
    assert found == ("local", 1)
    assert state.digest() == taken.older
    assert str(path) in caplog.text


@pytest.mark.parametrize("key", DATA + MANIFESTS)
def test_a_file_that_is_gone_is_passed_over(taken: Taken, key: str) -> None:
    path = taken.flash.root / key
    path.unlink()
    try:
        found, _ = restore(taken.flash)
    finally:
        path.write_bytes(taken.files[key])
    assert found == ("local", 1)
    assert restore(taken.flash)[0] == ("local", 2)


@pytest.mark.parametrize("key", [DATA[0], MANIFESTS[1]])
def test_a_damaged_part_is_written_anew_and_a_whole_one_is_left(taken: Taken, key: str) -> None:
    path, state = taken.flash.root / key, advance(tiny_state(), 2)
    data, _ = damaged(taken.files[key], 5000, 1)
    path.write_bytes(data)
    try:
        for part in NEWER.parts():
            write(taken.flash, state, part)
        assert path.read_bytes() == taken.files[key]
        before = path.stat().st_mtime_ns, path.stat().st_ino
        for part in NEWER.parts():
            write(taken.flash, state, part)
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    finally:
        path.write_bytes(taken.files[key])
    assert restore(taken.flash)[0] == ("local", 2)
