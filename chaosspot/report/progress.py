"""Lines that say what an attack is doing while it does it."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from chaosspot import history as h
from chaosspot.schedule import Fault, Schedule, Trigger
from chaosspot.trainers import Trainer
from chaosspot.undo import Healed
from chaosspot.words import count, plain

__all__ = ["Progress"]

_QUIET_S = 5.0  # a line at least this often while nothing but steps happens
_LONG_S = 10.0  # from then on what faults still wait for is said too


class Progress:
    """Observes an attack and prints to ``console`` (the standard error, by custom)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start_t = time.monotonic()
        self._last_t = self._start_t
        self._step = 0
        self._live: set[str] = set()
        self._deadlines: dict[str, float] = {}
        self._unmet: int | None = None  # the fault after which no commit was seen yet
        self._pending: dict[int, Fault] = {}  # faults whose trigger has not come

    def healed(self, dead: Healed) -> None:
        self._print(("healed", "yellow"), f" what a dead run left: {dead}")

    def started(self, run: Path, schedule: Schedule, trainer: Trainer) -> None:
        self._start_t = self._last_t = time.monotonic()
        self._pending = dict(enumerate(schedule.fault))
        title = f": {plain(schedule.title)}" if schedule.title else ""
        rest = f", seed {schedule.seed}{title}"
        self._print((f"attacking {plain(trainer.name)}", "bold"), rest)
        self._print(f"  run directory {plain(str(run))}")

    def twin(self, record: h.Record | None, steps: int) -> None:
        match record:
            case None:
                self._step = 0
                self._pending.clear()
                self._say(f"running the undisturbed twin to step {steps}")
            case h.Commit():
                self._step = max(self._step, record.step)
                self._beat(f"twin at step {self._step} of {steps}")
            case h.NodeGone():
                self._say(f"{record.node} of the twin {_gone(record)}")
            case h.RunStop() if self._step < steps:
                self._say(f"the twin stopped at step {self._step}: {record.reason}")

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
                self._say(f"{record.node} {_gone(record)}")
            case h.FaultInjected():
                self._pending.pop(record.fault, None)
                self._unmet = record.fault
                where = f" -> {', '.join(record.nodes)}" if record.nodes else ""
                self._say(f"{where} (step {self._step})", record.kind, "red")
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
                self._pending.pop(record.fault, None)
                self._say(f": {record.reason}", f"fault {record.fault} did not act", "yellow")
            case h.NoticeSeen():
                self._say(f"{record.node} read its notice")
            case h.Restore() if record.step > 0:  # step 0 is a fresh start
                self._say(f"{record.node} restored step {record.step} from {record.source}")
            case h.Commit():
                self._commit(record)
            case h.RunStop():
                self._say(f"stopped: {record.reason}")
                if record.log:
                    self._print((record.log, "dim"))

    def _commit(self, commit: h.Commit) -> None:
        if commit.step <= self._step:
            return
        first = self._step == 0
        self._step = commit.step
        if first or self._unmet is not None:
            self._unmet = None
            by = f" by {count(commit.world, 'rank')}" if commit.world else ""
            self._say(f" committed{by}", f"step {commit.step}", "green")
        left = [
            f"{node} has {max(0.0, deadline - time.time()):.0f} s left"
            for node, deadline in self._deadlines.items()
        ]
        if time.monotonic() - self._start_t >= _LONG_S:
            left += [
                f"fault {index} ({type(fault).kind}) waits for {awaited(fault.on)}"
                for index, fault in self._pending.items()
            ]
        nodes = count(len(self._live), "node")
        self._beat("; ".join([f"step {commit.step}, {nodes}", *left]))

    def _beat(self, text: str) -> None:
        if time.monotonic() - self._last_t >= _QUIET_S:
            self._say(text)

    def _say(self, text: str, head: str = "", style: str = "") -> None:
        """One line with the time; of what it says nothing is taken for markup."""
        self._last_t = time.monotonic()
        since_s = max(0.0, self._last_t - self._start_t)
        self._print(f"  {since_s:6.1f} s  ", (head, style), plain(text))

    def _print(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)


def awaited(on: Trigger) -> str:
    """What a trigger waits for, in a few words."""
    if on.at_step is not None:
        return f"step {on.at_step}"
    if on.event is not None:
        return f"{on.event!r}" if on.nth == 1 else f"{on.event!r} number {on.nth}"
    if on.point is not None:
        return f"point {on.point!r}" if on.nth == 1 else f"point {on.point!r}, hit {on.nth}"
    return f"{on.at_s:g} s after every worker has committed"


def _gone(record: h.NodeGone) -> str:
    return f"ended by itself, code {record.code}" if record.by_itself else "gone"
