"""Watches Google Cloud's metadata server for what is to come of this node.

The preemption flag is asked for with a hanging GET, which answers when it changes. Between two of
them there is time to ask for maintenance, which also makes the server tell of it. Where hanging
does not work, or the latest question failed, the flag is polled.

Sources: Compute Engine ("view and query VM metadata", "spot VMs", "host maintenance events").
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Self
from urllib.parse import quote

from chaosspot.trainer.watch.book import Event
from chaosspot.trainer.watch.core import Core, reason, utc_s
from chaosspot.trainer.watch.values import Answer, Ask, Moment, Outcome, Pace, Report, Request

__all__ = ["GcpWatch"]

LEAD_S = 30.0  # the shutdown period; a preemption notice, where one is configured, gives more
MAINTENANCE_LEAD_S = 60.0
UPCOMING_LEAD_S = 900.0

_INSTANCE = "/computeMetadata/v1/instance/"
_FLAG = "preempted"
_MAINTENANCE = "maintenance-event"
_UPCOMING = "upcoming-maintenance/"
_SIDES = (_MAINTENANCE, _MAINTENANCE, _UPCOMING)
_HANG_INTERVALS = 5  # a hanging GET's timeout, in poll intervals
_POLLS_AFTER_HANGING = 15  # where hanging has failed, so often the flag is polled instead
_SHORTEST_SIDE = 0.1  # of the interval: no room for another question in less
_HEADERS = {"Metadata-Flavor": "Google"}


@dataclass(frozen=True, kw_only=True, slots=True)
class GcpWatch:
    """Where the watch stands.

    Args:
        doing: which question is open: for the flag, at once or when it changes, or another key.
        flag_s: when the flag was asked for, or is to be again (monotonic).
        etag: of the flag, as last seen; empty when it has none.
        polls: so many times the flag is polled before hanging is tried (again).
        turn: counts questions for other keys: whose turn it is.
    """

    core: Core
    ask: Ask
    doing: Literal["poll", "hang", "side"]
    flag_s: float
    etag: str = ""
    polls: int = 0
    turn: int = 0

    @classmethod
    def start(cls, pace: Pace, began: Moment) -> Self:
        core = Core.start("gcp", pace, began)
        ask = _ask(_FLAG, at_s=began.now_s, timeout_s=core.patience_s)
        return cls(core=core, ask=ask, doing="poll", flag_s=began.now_s)

    def hear(self, outcome: Outcome, jitter: float) -> tuple[GcpWatch, tuple[Report, ...]]:
        if self.doing == "side":
            core, reports = self._heard_side(outcome)
            return replace(self, core=core, turn=self.turn + 1)._asking_flag(outcome), reports
        hung = self.doing == "hang"
        due_s = self.core.due_s(self.flag_s, outcome.received, jitter)
        try:
            events = _events(outcome)
        except ValueError as error:
            core, reports = self.core.failed(outcome, str(error))
            polls = _POLLS_AFTER_HANGING if hung else max(0, self.polls - 1)
            after = replace(self, core=core, etag="", flag_s=due_s, polls=polls)
            return after._asking_flag(outcome), reports
        assert isinstance(outcome, Answer)
        core, reports = self.core.shown(outcome, _FLAG, events, matters=True, hung=hung)
        etag = outcome.headers.get("etag", "")
        # Hanging begins at once, but what answers at once although nothing has changed must not
        # be asked in a busy loop.
        begins = bool(etag) and not hung and not self.polls
        after = replace(
            self,
            core=core,
            etag=etag,
            flag_s=outcome.received.now_s if begins else due_s,
            polls=max(0, self.polls - 1),
        )
        return after._asking_side(outcome), reports

    def _heard_side(self, outcome: Outcome) -> tuple[Core, tuple[Report, ...]]:
        if not isinstance(outcome, Answer) or outcome.status not in (200, 404):
            return self.core, ()  # its turn comes again; what matters is asked for next
        side = self._side()
        try:
            # a key that there is nothing to say about may be absent
            events = _READ[side](outcome.body) if outcome.status == 200 else []
        except (ValueError, RecursionError):
            return self.core, ()
        return self.core.shown(outcome, side, events)

    def _side(self) -> str:
        return _SIDES[self.turn % len(_SIDES)]

    def _hangs_next(self) -> bool:
        return bool(self.etag) and not self.polls

    def _asking_side(self, outcome: Outcome) -> GcpWatch:
        at_s, interval_s = outcome.received.now_s, self.core.pace.interval_s
        # A hanging GET may begin a little late: it tells what has changed meanwhile.
        room_s = max(self.flag_s - at_s, interval_s / 2 if self._hangs_next() else 0.0)
        if room_s < _SHORTEST_SIDE * interval_s:
            return self._asking_flag(outcome)
        query = "?recursive=true&alt=json" if self._side() == _UPCOMING else ""
        timeout_s = min(self.core.patience_s, room_s)
        return replace(
            self, ask=_ask(self._side() + query, at_s=at_s, timeout_s=timeout_s), doing="side"
        )

    def _asking_flag(self, outcome: Outcome) -> GcpWatch:
        at_s = max(self.flag_s, outcome.received.now_s)
        after = replace(self, flag_s=at_s)
        if not self._hangs_next():
            ask = _ask(_FLAG, at_s=at_s, timeout_s=self.core.patience_s)
            return replace(after, ask=ask, doing="poll")
        hang_s = max(1, round(_HANG_INTERVALS * self.core.pace.interval_s))
        path = f"{_FLAG}?wait_for_change=true&last_etag={quote(self.etag)}&timeout_sec={hang_s}"
        ask = _ask(path, at_s=at_s, timeout_s=hang_s + self.core.patience_s)
        return replace(after, ask=ask, doing="hang")


def _events(outcome: Outcome) -> list[Event]:
    """Raises ValueError for all but the flag: where it is hidden, nothing is known."""
    if not isinstance(outcome, Answer) or outcome.status != 200:
        raise ValueError(reason(outcome, _FLAG))
    match outcome.body.strip().upper():
        case b"FALSE":
            return []
        case b"TRUE":
            action = "preempt"
            return [Event(key=_FLAG, kind="interruption", action=action, lead_s=LEAD_S)]
    raise ValueError(f"{_FLAG}: neither TRUE nor FALSE: {outcome.body[:80]!r}")


def _maintenance(body: bytes) -> list[Event]:
    text = body.decode("ascii", "replace").strip()
    if text == "NONE":
        return []
    if not text.endswith("_ON_HOST_MAINTENANCE"):
        raise ValueError("not a maintenance event")
    event = Event(
        key=text,
        kind="maintenance",
        action=text.removesuffix("_ON_HOST_MAINTENANCE").lower(),
        lead_s=MAINTENANCE_LEAD_S,
        takes_node=not text.startswith("MIGRATE"),
    )
    return [event]


def _upcoming(body: bytes) -> list[Event]:
    told = json.loads(body)
    if not isinstance(told, dict):
        raise ValueError("not a maintenance window")
    if not told:
        return []
    event = Event(
        key="upcoming",
        kind="maintenance",
        action="upcoming-maintenance",
        lead_s=UPCOMING_LEAD_S,
        at_wall_s=utc_s(datetime.fromisoformat(str(told.get("windowStartTime")))),
        started=told.get("maintenanceStatus") == "ONGOING",
    )
    return [event]


_READ = {_MAINTENANCE: _maintenance, _UPCOMING: _upcoming}


def _ask(path: str, *, at_s: float, timeout_s: float) -> Ask:
    request = Request(path=_INSTANCE + path, headers=_HEADERS, timeout_s=timeout_s)
    return Ask(request=request, at_s=at_s)
