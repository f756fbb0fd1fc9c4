"""Every schedule of the catalogue against one trainer: ``pytest suites --trainer NAME``.

A trainer's description lists what it is known not to survive (``[[limit]]``). That is tested too:
it must fail by the finding that the limit names, so that a fix, or another failure, is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chaosspot import Trainer, Verdict, content, trainers
from chaosspot.conductor import UnsuitedError, UnsupportedError
from chaosspot.pytest_plugin import settings_of
from chaosspot.verdict import Outcome

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture
def trainer(request: pytest.FixtureRequest, tmp_path: Path) -> Trainer:
    return trainers.load(settings_of(request.config, tmp_path)["trainer"])


@pytest.mark.parametrize("name", content.names("faults"))
def test_survives(attack: Callable[..., Verdict], trainer: Trainer, name: str) -> None:
    try:
        verdict = attack(name)
    except (UnsuitedError, UnsupportedError) as error:
        pytest.skip(str(error))
    limit = next((limit for limit in trainer.limit if limit.schedule == name), None)
    if limit is None:
        verdict.check()
        return
    assert verdict.outcome is not Outcome.PASS, (
        f"{trainer.name} now passes {name}: take the limit out of its description"
    )
    assert verdict.primary is not None
    assert verdict.primary.oracle == limit.finding, verdict.findings
