"""Notices, and every way in which a metadata service misbehaves, on real processes and sockets.

The reference trainer's watcher sits in the small trainer, so that all of them on all clouds take
minutes; the reference trainer itself keeps a plain notice of each cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from msgspec.structs import replace

from chaosspot import Verdict, content
from chaosspot import schedule as schedules
from chaosspot.schedule import FileError
from chaosspot.trainers import Trainer, load
from chaosspot.verdict import Outcome

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

Attack = Callable[..., Verdict]
CLOUDS = ("aws", "gcp", "azure")
NAMES = [name for name in content.names("faults") if name.startswith("metadata-")]
NOT_THERE = {  # what a cloud has no occasion for
    ("gcp", "metadata-far-future"): "notices with a time",
    ("gcp", "metadata-skew-early"): "notices with a time",
    ("gcp", "metadata-skew-late"): "notices with a time",
    ("gcp", "metadata-token-kill"): "tokens",
    ("azure", "metadata-token-kill"): "tokens",
}
SEEN_BY_NONE_THAT_GIVES_UP = [
    *("metadata-unavailable", "metadata-html", "metadata-black-hole", "metadata-reset-body"),
    *(
        pytest.param(name, marks=pytest.mark.soak)
        for name in (
            *("metadata-unauthorized", "metadata-throttled", "metadata-empty"),
            *("metadata-closed", "metadata-reset-accept", "metadata-reset-head"),
        )
    ),
]


def trainer(name: str) -> Trainer:
    return load(str(Path(__file__).with_name(f"{name}.toml")))


def on_clouds() -> Iterator[ParameterSet]:
    """Each on all clouds that have it: on one of them, by turns, outside ``make soak``."""
    for number, name in enumerate(NAMES):
        there = [cloud for cloud in CLOUDS if (cloud, name) not in NOT_THERE]
        turn = there[number % len(there)]
        for cloud in there:
            yield pytest.param(cloud, name, marks=() if cloud == turn else pytest.mark.soak)


# AWS's notice of 30 s is in ``tests/test_reference.py``.
@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_the_reference_trainer_keeps_a_notice(attack: Attack, cloud: str) -> None:
    _, plan = schedules.load("spot-notice")
    notice = replace(plan.fault[0], lead_s=12.0)
    plan = replace(plan, fault=(notice,))
    attack(plan, trainer="reference", cloud=cloud, nodes=2, seed=1).check()


@pytest.mark.parametrize(("cloud", "name"), list(on_clouds()))
def test_the_watcher_survives(attack: Attack, cloud: str, name: str) -> None:
    attack(name, trainer=trainer("watched"), cloud=cloud, nodes=2, seed=1).check()


@pytest.mark.parametrize(("cloud", "name"), NOT_THERE)
def test_what_a_cloud_has_no_occasion_for_is_refused(attack: Attack, cloud: str, name: str) -> None:
    with pytest.raises(FileError, match=NOT_THERE[cloud, name]):
        attack(name, trainer=trainer("watched"), cloud=cloud, nodes=2)


@pytest.mark.parametrize("name", SEEN_BY_NONE_THAT_GIVES_UP)
def test_a_watcher_that_one_error_ends_fails(attack: Attack, name: str) -> None:
    verdict = attack(name, trainer=trainer("fragile"), nodes=2, seed=1)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.primary is not None
    assert verdict.primary.oracle == "notice"


def test_who_leaves_for_an_event_of_another_day_fails(attack: Attack) -> None:
    verdict = attack("metadata-far-future", trainer="minimal", nodes=2, seed=1)
    assert verdict.primary is not None
    assert "that was no reason to leave" in verdict.primary.message
