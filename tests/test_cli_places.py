"""Directories that are not as they should be: one clear message that names them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CHAOSSPOT, QUICK, Cli, attacking, cli_in, of_run, read_until

pytestmark = pytest.mark.long

QUICKLY = ("attack", QUICK, "--trainer", "minimal", "--seed", "1")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def mount_tmpfs(request: pytest.FixtureRequest) -> Callable[..., None]:
    def mount(path: Path, options: str) -> None:
        argv = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
        if subprocess.run(argv, capture_output=True, check=False).returncode:
            pytest.skip("a file system can be mounted by root alone")
        request.addfinalizer(lambda: subprocess.run(["umount", str(path)], check=True))

    return mount


# The state directory.


def test_a_state_directory_that_is_a_file_is_refused_before_anything_is_made(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "state").touch()
    done = cli(*QUICKLY)
    assert done.returncode == 2, done.stderr
    assert f"the state directory '{tmp_path}/state/leases' cannot be used" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((tmp_path / "work").iterdir())


def test_a_read_only_state_directory_is_refused_before_anything_is_made(
    cli: Cli, tmp_path: Path, mount_tmpfs: Callable[..., None]
) -> None:
    (tmp_path / "state").mkdir()
    mount_tmpfs(tmp_path / "state", "ro,size=64k")
    done = cli(*QUICKLY)
    assert done.returncode == 2, done.stderr
    assert f"'{tmp_path}/state/leases' cannot be used: Read-only file system" in done.stderr
    assert not list((tmp_path / "work").iterdir())
    found = json.loads(cli("doctor", "--json").stdout)
    assert any("Read-only" in check["found"] for check in found if not check["ok"])


def test_a_full_state_directory_is_named(
    cli: Cli, tmp_path: Path, mount_tmpfs: Callable[..., None]
) -> None:
    (tmp_path / "state").mkdir()
    mount_tmpfs(tmp_path / "state", "size=4k")
    done = cli(*QUICKLY)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "No space left on device" in done.stderr
    assert str(tmp_path / "state" / "leases") in done.stderr
    assert of_run(tmp_path / "state") == []


# The run directory.


def scripted(tmp_path: Path, code: str) -> Path:
    script = tmp_path / "train.py"
    script.write_text(code)
    description = tmp_path / "mine.toml"
    description.write_text(f"command = ['{{python}}', '{script}']\n[promises]\nexact = 'any-world'")
    return description


DELETES = """
import os, shutil, time
from chaosspot import probe
for step in range(1, 10**9):
    probe.emit("commit", step=step, digest=str(step))
    time.sleep(0.02)
    if step == 20:
        shutil.rmtree(os.path.join(os.environ["CHAOSSPOT_STORE"], "..", WHAT))
"""


@pytest.mark.parametrize("what", [".", "events", "../../runs"])
def test_a_trainer_that_removes_its_run_directory_makes_it_unknown(
    cli: Cli, tmp_path: Path, what: str
) -> None:
    description = scripted(tmp_path, DELETES.replace("WHAT", repr(what)))
    done = cli("attack", QUICK, "--trainer", description, timeout_s=40.0)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "was removed while the trainer ran" in done.stderr
    assert str(tmp_path / "work" / "runs" / "2") in done.stderr
    assert "Traceback" not in done.stderr
    assert of_run(tmp_path / "state") == []
    assert cli("cleanup").stdout == "nothing to heal\n"


def test_a_run_directory_that_vanishes_during_the_twin_makes_it_unknown(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with attacking(tmp_path, "--seed", "1") as process:
        read_until(process, "running the undisturbed twin")
        (tmp_path / "work" / "runs" / "latest").resolve().rename(tmp_path / "away")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    assert "was removed while the trainer ran" in said
    assert cli("cleanup").stdout == "nothing to heal\n"


def test_a_read_only_run_is_judged_all_the_same(
    cli: Cli, tmp_path: Path, mount_tmpfs: Callable[..., None]
) -> None:
    assert cli(*QUICKLY).returncode == 0
    kept = tmp_path / "kept"
    kept.mkdir()
    mount_tmpfs(kept, "size=16m")
    run = kept / "run"
    shutil.copytree((tmp_path / "work" / "runs" / "latest").resolve(), run)
    before = (run / "verdict.json").read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(kept)], check=True)
    judged = cli("judge", run)
    assert judged.returncode == 0, judged.stderr
    assert "pass  kill-and-replace on minimal, seed 1" in judged.stdout
    text = judged.stderr.replace("\n", "")
    assert f"'{run}/verdict.json' could not be written: Read-only file system" in text
    assert json.loads(cli("judge", run, "--json").stdout)["outcome"] == "pass"
    assert (run / "verdict.json").read_bytes() == before


def test_a_verdict_that_cannot_be_printed_is_no_pass(cli: Cli, tmp_path: Path) -> None:
    assert cli(*QUICKLY).returncode == 0
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [CHAOSSPOT, "judge", "runs/latest"],
            cwd=tmp_path / "work",
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr


# The link to the latest run.


@pytest.mark.parametrize("what", ["file", "directory", "link", "dangling"])
def test_what_is_called_latest_and_not_ours_is_left_alone(
    cli: Cli, tmp_path: Path, what: str
) -> None:
    runs = tmp_path / "work" / "runs"
    (runs / "elsewhere").mkdir(parents=True)
    latest = runs / "latest"
    if what == "file":
        latest.write_text("mine")
    elif what == "directory":
        latest.mkdir()
        (latest / "mine").touch()
    else:
        latest.symlink_to("elsewhere" if what == "link" else "nowhere")
    before = latest.lstat()
    done = cli(*QUICKLY, "--repeat", "2")
    assert done.returncode == 0, done.stderr
    assert latest.lstat().st_ino == before.st_ino
    assert done.stderr.replace("\n", "").count("'runs/latest' is left alone") == 1
    made = sorted(path.name for path in runs.iterdir())
    assert len(made) == 4, made
    assert all((runs / name / "verdict.json").exists() for name in made if name[0] == "2")
