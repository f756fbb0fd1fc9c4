"""A snapshot that was written once can be read for ever, or is refused by its format's name."""

from __future__ import annotations

import hashlib
import shutil
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from snapshotted import flash_at

from chaosspot.content import content_root
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.entries import Entry
from chaosspot.trainer.snapshot.manifest import FORMAT, Manifest, ManifestError
from chaosspot.trainer.snapshot.parts import Part, SnapshotId
from chaosspot.trainer.snapshot.reading import read_into

SNAPSHOTS = content_root() / "fixtures" / "snapshots"
V2 = SNAPSHOTS / "v2"
PARTS = SnapshotId(3, 1, 2).parts()

TENSORS = "d44d9d8654d0076ecd13ec745444f232"
"""Sum over names, types, shapes and values, as they were when the fixture was written."""


def manifests(root: Path) -> list[Manifest]:
    return [Manifest.decode((root / p.manifest_key).read_bytes(), part=p) for p in PARTS]


def test_the_snapshot_of_version_2_has_the_tensors_that_were_recorded() -> None:
    found = manifests(V2)
    image = bytearray(found[0].total_bytes)
    for manifest in found:
        end = manifest.start + manifest.sums.file_bytes
        target = memoryview(image)[manifest.start : end]
        read_into(RealDisk(), V2 / manifest.part.data_key, manifest.sums, [target])
    total = blake2b(digest_size=16)
    for name, entry in sorted(found[0].tensors.items()):
        total.update(f"{name} {entry.dtype} {entry.shape}\n".encode())
        total.update(image[entry.start : entry.stop])
    assert total.hexdigest() == TENSORS
    counters = found[1].tensors["counters"]
    assert counters == Entry(
        dtype="I64", shape=(2,), start=counters.start, stop=counters.start + 16
    )
    values = np.frombuffer(image[counters.start : counters.stop], "<i8")
    assert values.tolist() == [3, 3], "the counters are not those of step 3"


def test_what_the_manifests_of_version_2_say_is_understood() -> None:
    one, other = manifests(V2)
    assert (one.step, one.generation, one.count, one.job) == (3, 1, 2, "fixture")
    assert one.digest == other.digest == "3d8d2ea5840b965d37fb8bc7259dd219"
    assert one.tensors == other.tensors
    assert (one.start, one.sums.file_bytes, other.start) == (0, 73_728, 73_728)
    assert other.start + other.sums.file_bytes == one.total_bytes == 147_856


def test_each_format_that_is_written_has_a_snapshot_that_stays_readable() -> None:
    """A new version needs a directory of its own; what lies in the others is never changed."""
    assert (SNAPSHOTS / f"v{FORMAT.rpartition('/')[2]}").is_dir()
    files = [path for path in SNAPSHOTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000, "all of it goes into the wheel"


def renamed(manifest: Path, version: str) -> None:
    """Let the manifest be of another format, and whole."""
    text = (
        manifest.read_bytes().split(b"\n")[0].replace(b"snapshot/2", f"snapshot/{version}".encode())
    )
    manifest.write_bytes(text + b"\n" + hashlib.blake2b(text, digest_size=16).hexdigest().encode())


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("3", r"format is 'chaosspot-snapshot/3', expected .*/2': written by a newer version"),
        ("10", r"format is 'chaosspot-snapshot/10', expected .*/2': written by a newer version"),
        ("1", r"format is 'chaosspot-snapshot/1', expected 'chaosspot-snapshot/2'$"),
    ],
)
def test_another_format_is_refused_by_name(
    tmp_path: Path, version: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(V2, tmp_path / "flash")
    part: Part = PARTS[1]
    renamed(tmp_path / "flash" / part.manifest_key, version)
    with flash_at(tmp_path / "flash") as flash:
        with pytest.raises(ManifestError, match=says) as refused:
            flash.manifest(part)
        assert str(tmp_path / "flash" / part.manifest_key) in str(refused.value)
        assert flash.manifest(PARTS[0]).job == "fixture", "the other part is read as before"
