"""The Dockerfile that users begin with, where its base is on this machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from docked import NEEDS_DAEMON

from chaosspot import Verdict
from chaosspot.verdict import Outcome

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "fixtures" / "Dockerfile"
NAME = "chaosspot-node:test"

pytestmark = [*NEEDS_DAEMON, pytest.mark.long, pytest.mark.timeout(1200)]


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_it_makes_a_node_that_the_reference_trainer_runs_in(attack: Callable[..., Verdict]) -> None:
    found = re.search(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert found
    if docker("image", "inspect", found[1]).returncode:
        pytest.skip(f"{found[1]} is not on this machine, and no test pulls an image")
    built = docker("build", "--file", str(DOCKERFILE), "--tag", NAME, ".")
    assert built.returncode == 0, built.stdout + built.stderr
    try:
        verdict = attack(
            schedule="sudden-kill", trainer="reference", cluster="containers", image=NAME
        )
        assert verdict.outcome is Outcome.PASS, verdict.findings
    finally:
        docker("rmi", "--force", NAME)
