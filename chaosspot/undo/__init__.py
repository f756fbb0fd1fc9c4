"""Everything this harness does to a machine is written down first and undone always.

A run holds a :class:`Lease`: a directory of its own in the user's state directory, with a record
per thing to undo that is on disk before the thing happens, and a guardian process that undoes
all of it when the harness dies. What even the guardian could not do, the next start does.

Names are resolved on first use: a node's supervisor imports :mod:`chaosspot.undo.procfs` and
must not pay for msgspec.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaosspot.undo.kinds import (
        Containers,
        Directory,
        Mount,
        Paused,
        ProcessTree,
        Proxies,
        Throttled,
        Undo,
    )
    from chaosspot.undo.lease import Lease
    from chaosspot.undo.recovery import Healed, heal_dead_runs, heal_lost_containers
    from chaosspot.undo.state import StateError

_HOME = {
    "Containers": "chaosspot.undo.kinds",
    "Directory": "chaosspot.undo.kinds",
    "Healed": "chaosspot.undo.recovery",
    "Lease": "chaosspot.undo.lease",
    "Mount": "chaosspot.undo.kinds",
    "Paused": "chaosspot.undo.kinds",
    "ProcessTree": "chaosspot.undo.kinds",
    "Proxies": "chaosspot.undo.kinds",
    "StateError": "chaosspot.undo.state",
    "Throttled": "chaosspot.undo.kinds",
    "Undo": "chaosspot.undo.kinds",
    "heal_dead_runs": "chaosspot.undo.recovery",
    "heal_lost_containers": "chaosspot.undo.recovery",
}

__all__ = [
    "Containers",
    "Directory",
    "Healed",
    "Lease",
    "Mount",
    "Paused",
    "ProcessTree",
    "Proxies",
    "StateError",
    "Throttled",
    "Undo",
    "heal_dead_runs",
    "heal_lost_containers",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
