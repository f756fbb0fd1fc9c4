"""Lines that say what an attack is doing while it does it."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from chaosspot import history as h
from chaosspot.schedule import Schedule
from chaosspot.trainers import Trainer
from chaosspot.undo import Healed

__all__ = ["Progress"]

_QUIET_S = 5.0  # a line at least this often while nothing but steps happens


class Progress:
    """Observes an attack and prints to ``console`` (the standard error, by custom)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start_t = time.monotonic()
        self._last_t = self._start_t
        self._step = 0
        self._world = 0
        self._live: set[str] = set()
        self._deadlines: dict[str, float] = {}
        self._waiting: int | None = None  # the fault after which no commit was seen yet

    def healed(self, dead: Healed) -> None:
        self._console.print(f"[yellow]healed[/] what a dead run left: {escape(str(dead))}")

    def started(self, run: Path, schedule: Schedule, trainer: Trainer) -> None:
        self._start_t = self._last_t = time.monotonic()
        title = f": {escape(schedule.title)}" if schedule.title else ""
        self._console.print(f"[bold]attacking {trainer.name}[/], seed {schedule.seed}{title}")
        self._console.print(f"  run directory {escape(str(run))}", soft_wrap=True)

    def twin(self, record: h.Record | None, steps: int) -> None:
        if record is None:
            self._step = 0
            self._say(f"running the undisturbed twin to step {steps}")
        elif isinstance(record, h.Commit):
            self._step = max(self._step, record.step)
            self._beat(f"twin at step {self._step} of {steps}")

    def record(self, record: h.Record) -> None:
        match record:
            case h.NodeUp():
                if record.role == "worker":
                    self._live.add(record.node)
                again = record.replaces == record.node
                instead = f" in place of {record.replaces}" if record.replaces else ""
                instead = " again" if again else instead
                place = f"{record.role}, zone {record.zone}, {record.pool}"
                self._say(f"{record.node} up{instead} ({place})")
            case h.NodeGone():
                self._live.discard(record.node)
                self._deadlines.pop(record.node, None)
                how = f"ended by itself, code {record.code}" if record.by_itself else "gone"
                self._say(f"{record.node} {how}")
            case h.FaultInjected():
                self._waiting = record.fault
                where = f" -> {', '.join(record.nodes)}" if record.nodes else ""
                self._say(f"[red]{record.kind}[/]{where} (step {self._step})")
            case h.FaultEffect(what="published") if record.deadline_wall_s is not None:
                self._deadlines[record.node] = record.deadline_wall_s
            case h.FaultEffect(what="withdrawn"):
                self._deadlines.pop(record.node, None)
                self._say(f"the notice of {record.node} is withdrawn")
            case h.FaultEffect() if record.what not in ("gone", "up"):
                self._say(f"{record.node} {record.what}")
            case h.NodeRestart():
                self._say(f"{record.node} failed with code {record.code} and is started again")
            case h.FaultMissed():
                self._say(f"[yellow]fault {record.fault} did not act[/]: {record.reason}")
            case h.NoticeSeen():
                self._say(f"{record.node} read its notice")
            case h.Restore():
                self._say(f"{record.node} restored step {record.step} from {record.source}")
            case h.Commit():
                self._commit(record)
            case h.RunStop():
                self._say(f"stopped: {record.reason}")
                if record.log:
                    self._console.print(escape(record.log), style="dim", soft_wrap=True)

    def _commit(self, commit: h.Commit) -> None:
        if commit.step <= self._step:
            return
        first = self._step == 0
        self._step, self._world = commit.step, commit.world
        if first or self._waiting is not None:
            self._waiting = None
            self._say(f"[green]step {commit.step}[/] committed by {commit.world} ranks")
        left = [
            f"{node} has {max(0.0, deadline - time.time()):.0f} s left"
            for node, deadline in self._deadlines.items()
        ]
        self._beat("; ".join([f"step {commit.step}, {len(self._live)} nodes", *left]))

    def _beat(self, text: str) -> None:
        if time.monotonic() - self._last_t >= _QUIET_S:
            self._say(text)

    def _say(self, text: str) -> None:
        self._last_t = time.monotonic()
        self._console.print(f"  {self._last_t - self._start_t:6.1f} s  {text}", highlight=False)
