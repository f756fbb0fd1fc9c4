"""``chaosspot snapshot``: what it says of good, damaged, incomplete and foreign files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from click.testing import Result
from moto import mock_aws
from rich.console import Console
from safetensors.numpy import load_file
from typer.testing import CliRunner

from chaosspot.cli import app
from chaosspot.cli.shelves import ReadDisk
from chaosspot.content import content_root
from chaosspot.trainer.place import ObjectPlace
from chaosspot.trainer.snapshot.disk import RealDisk
from chaosspot.trainer.snapshot.manifest import Manifest
from chaosspot.trainer.snapshot.object_store import ObjectStore
from chaosspot.trainer.snapshot.parts import Part, SnapshotId

V2 = content_root() / "fixtures" / "snapshots" / "v2"
STEP_3 = SnapshotId(3, 1, 2)
FIRST, SECOND = STEP_3.parts()


def run(*argv: object) -> Result:
    return CliRunner().invoke(app, ["snapshot", *map(str, argv)])


def told(*argv: object) -> Any:
    return json.loads(run(*argv, "--json").stdout)


@pytest.fixture
def flash(tmp_path: Path) -> Path:
    """A directory with one snapshot, of step 3, in two parts."""
    return Path(shutil.copytree(V2, tmp_path / "flash"))


def also(root: Path, step: int, *, generation: int = 1, indices: tuple[int, ...] = (0, 1)) -> None:
    """The parts of step 3 as those of another step."""
    for index in indices:
        old, new = STEP_3.parts()[index], Part(SnapshotId(step, generation, 2), index)
        manifest = Manifest.decode((V2 / old.manifest_key).read_bytes())
        (root / new.folder).mkdir(parents=True)
        shutil.copy(V2 / old.data_key, root / new.data_key)
        changed = Manifest(**{**_fields(manifest), "step": step, "generation": generation})
        (root / new.manifest_key).write_bytes(changed.encode())


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in manifest.__struct_fields__}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


# Good ones


def test_list_shows_what_is_there_and_what_is_missing(flash: Path) -> None:
    also(flash, 5, indices=(1,))
    done = run("list", flash)
    assert done.exit_code == 0, done.output
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["step", "generation", "parts", "bytes", "state"]
    assert rows == [
        ["3", "1", "2/2", "147,856", "complete"],
        ["5", "1", "1/2", "74,128", "missing:", "part", "0"],
    ]
    three, five = told("list", flash)
    assert (three["complete"], three["problems"]) == (True, [])
    assert (five["complete"], five["problems"], five["total_bytes"]) == (
        False,
        ["missing: part 0"],
        147_856,
    )


def test_a_part_without_a_manifest_is_not_finished(flash: Path) -> None:
    (flash / SECOND.manifest_key).unlink()
    done = run("list", flash)
    assert done.exit_code == 1, "none is complete"
    assert "part 1: not finished" in done.stdout


def test_inspect_shows_parts_and_tensors_of_the_newest_complete_one(flash: Path) -> None:
    also(flash, 5, indices=(0,))
    done = run("inspect", flash)
    assert done.exit_code == 0, done.output
    assert "step 3, generation 1, in 2 parts: complete" in done.stdout
    assert "job fixture, digest 3d8d2ea5840b965d37fb8bc7259dd219" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["parameters/bytes.weight", "F32", "256x16", "16,384"] in rows
    assert [row[:3] for row in rows if row[0] in ("0", "1")] == [
        ["0", "0", "73,728"],
        ["1", "73,728", "74,128"],
    ]
    assert told("inspect", flash)["copies"][1]["start"] == 73_728
    assert run("inspect", flash, 5).exit_code == 1


def test_the_newest_complete_generation_of_a_step_is_taken(flash: Path) -> None:
    also(flash, 3, generation=2)
    also(flash, 3, generation=3, indices=(0,))
    assert told("inspect", flash, 3)["generation"] == 2


def test_the_disks_of_several_nodes_together_make_a_snapshot(tmp_path: Path) -> None:
    nodes = [tmp_path / f"node-{index}" for index in (0, 1)]
    for root, part in zip(nodes, STEP_3.parts(), strict=True):
        shutil.copytree(V2 / part.folder, root / part.folder)
    alone = run("list", nodes[0])
    assert alone.exit_code == 1
    assert "missing: part 1" in alone.stdout
    assert run("verify", *nodes).exit_code == 0
    out = tmp_path / "out.safetensors"
    assert run("restore", *nodes, 3, "--out", out).exit_code == 0
    assert load_file(out)["ballast"].shape == (100,)


def test_restore_writes_every_tensor_as_it_was(flash: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    done = run("restore", flash, "--out", out)
    assert done.exit_code == 0, done.output
    tensors = load_file(out)
    manifest = Manifest.decode((V2 / FIRST.manifest_key).read_bytes())
    image = b"".join((V2 / part.data_key).read_bytes() for part in STEP_3.parts())
    assert tensors.keys() == manifest.tensors.keys()
    dtypes = {"F32": np.float32, "U8": np.uint8, "I64": np.int64}
    for name, entry in manifest.tensors.items():
        expected = np.frombuffer(image[entry.start : entry.stop], dtypes[entry.dtype])
        assert tensors[name].dtype == expected.dtype
        assert np.array_equal(tensors[name], expected.reshape(entry.shape)), name
    assert sorted(os.listdir(tmp_path)) == ["flash", "out.safetensors"]


@mock_aws
def test_an_object_store_is_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket="snapshots")
    store = ObjectStore(ObjectPlace(bucket="snapshots", prefix="job/"))
    for part in STEP_3.parts():
        for key in (part.data_key, part.manifest_key):
            store.put(key, (V2 / key).read_bytes())
    assert run("verify", "s3://snapshots/job").exit_code == 0
    out = tmp_path / "out.safetensors"
    assert run("restore", "s3://snapshots/job", "--out", out).exit_code == 0
    assert len(load_file(out)) == 57
    data = bytearray((V2 / SECOND.data_key).read_bytes())
    data[5000] ^= 1
    store.put(SECOND.data_key, data)
    done = run("verify", "s3://snapshots/job")
    assert done.exit_code == 1
    assert f"s3://snapshots/job/{SECOND.data_key}: data from byte 4096" in done.stdout
    absent = run("list", "s3://not-there/job")
    assert absent.exit_code == 2
    assert "'s3://not-there/job' cannot be listed" in absent.stderr


# Damaged ones


def test_verify_names_every_damaged_part_and_goes_on(flash: Path) -> None:
    also(flash, 5)
    also(flash, 7)
    five, seven = SnapshotId(5, 1, 2), SnapshotId(7, 1, 2)
    flip(flash / five.parts()[0].data_key, 9000)
    os.truncate(flash / five.parts()[1].data_key, 70_000)
    flip(flash / seven.parts()[1].manifest_key, 100)
    done = run("verify", flash)
    assert done.exit_code == 1
    assert "step 3, generation 1, in 2 parts: good" in done.stdout
    assert "step 5, generation 1, in 2 parts: not good" in done.stdout
    assert f"{flash / five.parts()[0].data_key}: bytes 8192 to 12288: expected" in done.stdout
    assert f"{flash / five.parts()[1].data_key}: bytes 70000 to 74128" in done.stdout
    assert f"{flash / seven.parts()[1].manifest_key}: not a manifest" in done.stdout
    assert run("verify", flash, 3).exit_code == 0
    assert run("verify", flash, 5).exit_code == 1
    answers = {answer["step"]: answer for answer in told("verify", flash)}
    assert [len(answers[step]["damaged"]) for step in (3, 5, 7)] == [0, 2, 1]


def test_restore_refuses_damage_and_leaves_no_file(flash: Path, tmp_path: Path) -> None:
    also(flash, 5)
    data = flash / SnapshotId(5, 1, 2).parts()[0].data_key
    flip(data, 9000)
    out = tmp_path / "out.safetensors"
    done = run("restore", flash, "--out", out)
    assert done.exit_code == 1
    assert f"{data}: bytes 8192 to 12288" in done.stderr
    assert "complete as well: step 3" in done.stderr
    assert os.listdir(tmp_path) == ["flash"]
    done = run("restore", flash, 3, "--out", out)
    assert done.exit_code == 0, done.output


def test_restore_takes_a_good_copy_from_another_place(flash: Path, tmp_path: Path) -> None:
    flip(flash / FIRST.data_key, 9000)
    out = tmp_path / "out.safetensors"
    assert run("restore", flash, V2, "--out", out).exit_code == 0
    assert run("verify", flash, V2).exit_code == 1, "but the damage is still told"


def test_restore_says_what_it_passed_over(flash: Path, tmp_path: Path) -> None:
    also(flash, 5, indices=(0,))
    done = run("restore", flash, "--out", tmp_path / "out.safetensors")
    assert done.exit_code == 0
    assert "passed over: step 5, generation 1, in 2 parts: missing: part 1" in done.stderr
    done = run("restore", flash, 5, "--out", tmp_path / "other.safetensors")
    assert done.exit_code == 1
    assert "missing: part 1" in done.stderr


def test_parts_of_different_states_are_no_snapshot(flash: Path) -> None:
    path = flash / SECOND.manifest_key
    manifest = Manifest.decode(path.read_bytes())
    path.write_bytes(Manifest(**{**_fields(manifest), "digest": "another"}).encode())
    done = run("inspect", flash)
    assert done.exit_code == 1
    assert "the parts are not of one state: their digest differs" in done.stdout


def test_a_newer_format_is_refused_by_name(flash: Path) -> None:
    path = flash / FIRST.manifest_key
    path.write_bytes(path.read_bytes().replace(b"snapshot/2", b"snapshot/3"))
    done = run("verify", flash)
    assert done.exit_code == 1
    assert f"{path}: format is 'chaosspot-snapshot/3'" in done.stdout
    assert "newer version" in done.stdout


# What a user can mend


def refused(done: Result, *texts: str) -> None:
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for text in texts:
        assert text in done.stderr


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(run("list", tmp_path / "absent"), f"there is no '{tmp_path}/absent'")
    refused(run("list", tmp_path / "file"), f"'{tmp_path}/file' is no directory")
    refused(run("list", tmp_path / "file" / "below"), "there is no", "below'")
    refused(run("list", "s3://No_Bucket/x"), "no bucket can have the name 'No_Bucket'")
    (tmp_path / "file").unlink()
    refused(run("list", tmp_path), f"no snapshot in '{tmp_path}'")
    refused(run("inspect", 3), "no PLACE, only the step 3")


def test_files_of_somebody_else_are_named_and_do_no_harm(flash: Path) -> None:
    for name in ("notes.txt", "step-3", "step-0000000003/other", f"{FIRST.folder}core"):
        (flash / name).write_text("x")
    done = run("verify", flash)
    assert done.exit_code == 0
    assert f"{str(flash)!r}: none of a snapshot, passed over: 'notes.txt'" in done.stderr
    assert done.stderr.rstrip().endswith("and 1 more")


def test_a_step_that_is_not_there_is_refused_with_those_that_are(flash: Path) -> None:
    also(flash, 5)
    for command in ("inspect", "verify"):
        refused(run(command, flash, 4), "no snapshot of step 4", "there are: 3, 5")


def test_a_file_that_is_there_is_not_written_over(flash: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    out.write_text("mine")
    refused(run("restore", flash, "--out", out), f"--out '{out}' is there already")
    assert out.read_text() == "mine"
    refused(run("restore", flash, "--out", tmp_path / "no" / "x"), f"no directory '{tmp_path}/no'")


def test_a_file_that_comes_meanwhile_is_not_written_over(
    flash: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"
    real = RealDisk.sync

    def sync(disk: RealDisk, descriptor: int) -> None:
        out.write_text("mine")
        real(disk, descriptor)

    monkeypatch.setattr(RealDisk, "sync", sync)
    refused(run("restore", flash, "--out", out), "File exists")
    assert out.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["flash", "out.safetensors"]


def _none_left(*_: object) -> int:
    return 1000


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("operation", "act", "says"),
    [
        ("free_bytes", _none_left, "no space for 147,856 bytes, 1,000 are left"),
        ("pwrite", _full, "No space left on device"),
    ],
)
def test_no_space_is_told_and_leaves_nothing(
    flash: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    act: Callable[..., int],
    says: str,
) -> None:
    monkeypatch.setattr(RealDisk, operation, act)
    out = tmp_path / "out.safetensors"
    refused(run("restore", flash, "--out", out), f"--out '{out}'", says)
    assert os.listdir(tmp_path) == ["flash"]


# How it does that


@pytest.mark.parametrize("command", ["verify", "restore"])
def test_ctrl_c_ends_it_with_130_and_leaves_nothing(
    flash: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def pread(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReadDisk, "pread", pread)
    out = ["--out", tmp_path / "out.safetensors"] if command == "restore" else []
    done = run(command, flash, *out)
    assert done.exit_code == 130
    assert "interrupted" in done.stderr
    assert os.listdir(tmp_path) == ["flash"]


def test_a_disk_that_is_stopped_reads_no_more(flash: Path) -> None:
    counted: list[int] = []
    disk = ReadDisk(counted.append)
    descriptor = disk.open(flash / FIRST.data_key)
    try:
        assert disk.pread(descriptor, memoryview(bytearray(10)), 0) == 10
        disk.stop()
        with pytest.raises(OSError, match="canceled"):
            disk.pread(descriptor, memoryview(bytearray(10)), 0)
    finally:
        disk.close(descriptor)
    assert counted == [10]


def test_a_bar_is_shown_on_a_terminal_alone(flash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("verify", flash).stderr == ""
    monkeypatch.setattr(
        "chaosspot.cli.snapshot.err", Console(stderr=True, force_terminal=True, width=100)
    )
    assert "verifying" in run("verify", flash).stderr


def test_torch_is_not_needed() -> None:
    code = (
        "import sys\n"
        "from chaosspot.cli import app\n"
        f"app(['snapshot', 'verify', {str(V2)!r}], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "good" in done.stdout
