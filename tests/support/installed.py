"""The wheel, and an environment it is installed in: made once for all tests that ask."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def wheel(base: Path) -> Path:
    """The wheel, built in a folder of ``base``."""
    out = base / "dist"
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return next(out.glob("*.whl"))


@cache
def environment(base: Path) -> Path:
    """A virtual environment that holds what pip installs for the wheel, nothing else."""
    env = base / "env"
    _run(sys.executable, "-m", "venv", env)
    pip = (env / "bin" / "python", "-m", "pip", "install", "--quiet")
    _run(*pip, "--constraint", ROOT / "constraints.txt", wheel(base))
    return env


def _run(*argv: object) -> None:
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
