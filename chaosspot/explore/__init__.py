"""Hypothesis finds the schedule that breaks a trainer, and hands over the smallest one.

The strategies draw every schedule that can be made; they are public, and ``from_type(Schedule)``
draws from them too. :func:`explore` searches with them, remembers what it tried, and shrinks.

Names are resolved on first use: an entry point of Hypothesis loads this package in every process
that imports Hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaosspot.explore.exploring import Exploration
    from chaosspot.explore.ground import Ground, ground_of
    from chaosspot.explore.machine import SpotMachine
    from chaosspot.explore.places import clusters, targets
    from chaosspot.explore.preempting import preemptions
    from chaosspot.explore.profile import attacking
    from chaosspot.explore.running import explore
    from chaosspot.explore.strategies import faults, schedules
    from chaosspot.explore.times import triggers

_HOME = {
    "Exploration": "chaosspot.explore.exploring",
    "Ground": "chaosspot.explore.ground",
    "SpotMachine": "chaosspot.explore.machine",
    "attacking": "chaosspot.explore.profile",
    "clusters": "chaosspot.explore.places",
    "explore": "chaosspot.explore.running",
    "faults": "chaosspot.explore.strategies",
    "ground_of": "chaosspot.explore.ground",
    "preemptions": "chaosspot.explore.preempting",
    "schedules": "chaosspot.explore.strategies",
    "targets": "chaosspot.explore.places",
    "triggers": "chaosspot.explore.times",
}

__all__ = [
    "Exploration",
    "Ground",
    "SpotMachine",
    "attacking",
    "clusters",
    "explore",
    "faults",
    "ground_of",
    "preemptions",
    "schedules",
    "targets",
    "triggers",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
