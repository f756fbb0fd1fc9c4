"""Fault injection for training jobs on preemptible nodes.

Importing this package costs nothing: names are resolved on first use, so that a trainer that
only wants :mod:`chaosspot.probe` loads the standard library and no more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaosspot.conductor import attack, attack_async
    from chaosspot.schedule import Schedule
    from chaosspot.trainers import Trainer
    from chaosspot.verdict import Finding, Verdict

_HOME = {
    "Finding": "chaosspot.verdict",
    "Schedule": "chaosspot.schedule",
    "Trainer": "chaosspot.trainers",
    "Verdict": "chaosspot.verdict",
    "attack": "chaosspot.conductor",
    "attack_async": "chaosspot.conductor",
}

__all__ = ["Finding", "Schedule", "Trainer", "Verdict", "attack", "attack_async"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
