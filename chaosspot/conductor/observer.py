"""Who watches an attack."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from chaosspot import history as h
from chaosspot.schedule import Schedule
from chaosspot.trainers import Trainer
from chaosspot.undo import Healed

__all__ = ["Observer", "Silent"]


class Observer(Protocol):
    """Who watches an attack; called on its event loop and must not block."""

    def healed(self, dead: Healed) -> None:
        """Something a dead run left behind was put right at the start."""

    def started(self, run: Path, schedule: Schedule, trainer: Trainer) -> None:
        """The run directory stands and the seed is chosen."""

    def record(self, record: h.Record) -> None:
        """Something was recorded, by the attacked run."""

    def twin(self, record: h.Record | None, steps: int) -> None:
        """The twin is being run to ``steps``; None when it starts."""


class Silent:
    """An observer that says nothing."""

    def healed(self, dead: Healed) -> None: ...
    def started(self, run: Path, schedule: Schedule, trainer: Trainer) -> None: ...
    def record(self, record: h.Record) -> None: ...
    def twin(self, record: h.Record | None, steps: int) -> None: ...
