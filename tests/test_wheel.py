"""The wheel, in an empty environment, used from another folder."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import installed
import pytest

pytestmark = pytest.mark.wheel


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


def test_the_wheel_carries_the_content_and_no_more(base: Path) -> None:
    wheel = installed.wheel(base)
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "chaosspot/py.typed",
        "chaosspot/undo/guardian.py",
        "chaosspot/_content/faults/sudden-kill.toml",
        "chaosspot/_content/suites/sick/deaf.toml",
        "chaosspot/_content/fixtures/trainers/minimal.py",
        "chaosspot/_content/fixtures/corpus/apache-2.0.txt",
    ):
        assert needed in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"chaosspot", next(t for t in tops if t.endswith(".dist-info"))}
    assert not [name for name in names if "__pycache__" in name or "/runs/" in name]
    assert wheel.stat().st_size < 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_attacks_from_an_empty_environment(base: Path, tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    programs = installed.environment(base) / "bin"

    def run(*argv: object) -> str:
        done = subprocess.run(
            [str(part) for part in argv],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    chaosspot = programs / "chaosspot"
    assert "sudden-kill" in run(chaosspot, "faults")
    said = run(chaosspot, "attack", "sudden-kill", "--trainer", "minimal", "--seed", 1)
    assert "pass  sudden-kill on minimal" in said
    where = run(programs / "python", "-c", "import chaosspot; print(chaosspot.__file__)")
    assert where.startswith(str(base))
