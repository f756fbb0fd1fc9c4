"""Watches Azure's scheduled events for what is to come of this node.

The events are those of a whole scale set, and name its machines as the instance document does: an
event is this node's only if that name is among its resources. Events are never approved, since
that starts them for all of their resources.

Sources: Azure's documentation of scheduled events and of the instance metadata service;
azure-docs#62522 for a machine's two names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Self

from chaosspot.trainer.watch.book import Event
from chaosspot.trainer.watch.core import Core, http_date_s, reason, utc_s
from chaosspot.trainer.watch.values import Answer, Ask, Moment, Outcome, Pace, Report, Request

__all__ = ["AzureWatch"]

# The documented least notice of each: more may be given, but cannot be counted on.
LEADS_S = {
    "Preempt": 30.0,
    "Terminate": 900.0,
    "Reboot": 900.0,
    "Redeploy": 600.0,
    "Freeze": 900.0,
}

_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute?api-version=2021-02-01"
_HEADERS = {"Metadata": "true"}
_INTERRUPTIONS = ("Preempt", "Terminate")
_SHORTEST_SIDE = 0.1  # of the interval: no room for another question in less


@dataclass(frozen=True, kw_only=True, slots=True)
class AzureWatch:
    """Where the watch stands.

    Args:
        doing: which question is open: for the events, or for this node's name.
        began_s: when the events were asked for, or are to be again (monotonic).
        name: what Azure calls this node; None until it has been told.
        pending: an answer with events that waits for the name.
    """

    core: Core
    ask: Ask
    doing: Literal["events", "name"]
    began_s: float
    name: str | None = None
    pending: Answer | None = None

    @classmethod
    def start(cls, pace: Pace, began: Moment) -> Self:
        core = Core.start("azure", pace, began)
        ask = _ask(_EVENTS, at_s=began.now_s, timeout_s=core.patience_s)
        return cls(core=core, ask=ask, doing="events", began_s=began.now_s)

    def hear(self, outcome: Outcome, jitter: float) -> tuple[AzureWatch, tuple[Report, ...]]:
        if self.doing == "name":
            return self._heard_name(outcome, jitter)
        try:
            told = _events(outcome)
        except ValueError as error:
            core, reports = self.core.failed(outcome, str(error))
            return replace(self, core=core)._next_poll(outcome, jitter), reports
        assert isinstance(outcome, Answer)
        if told and self.name is None:
            after = replace(self, pending=outcome)
            return after._asking_name(outcome, self.core.patience_s), ()
        after, reports = self._shown(outcome, told)
        room_s = self.core.due_s(self.began_s, outcome.received, jitter) - outcome.received.now_s
        if self.name is None and room_s >= _SHORTEST_SIDE * self.core.pace.interval_s:
            return after._asking_name(outcome, min(room_s, self.core.patience_s)), reports
        return after._next_poll(outcome, jitter), reports

    def _heard_name(self, outcome: Outcome, jitter: float) -> tuple[AzureWatch, tuple[Report, ...]]:
        pending, after = self.pending, replace(self, pending=None)
        try:
            after = replace(after, name=_name(outcome))
        except ValueError as error:
            if pending is None:  # there is time to ask again
                return after._next_poll(outcome, jitter), ()
            why = f"there are events, but for which node is not known: {error}"
            core, reports = self.core.failed(outcome, why)
            return replace(after, core=core)._next_poll(outcome, jitter), reports
        if pending is None:
            return after._next_poll(outcome, jitter), ()
        # Time has gone by since the events were told.
        after, reports = after._shown(replace(pending, received=outcome.received), _events(pending))
        return after._next_poll(outcome, jitter), reports

    def _shown(self, answer: Answer, told: list[Any]) -> tuple[AzureWatch, tuple[Report, ...]]:
        own = [_event(event) for event in told if self.name in _resources(event)]
        core, reports = self.core.shown(answer, "events", own, matters=True)
        return replace(self, core=core), reports

    def _asking_name(self, outcome: Outcome, timeout_s: float) -> AzureWatch:
        ask = _ask(_NAME, at_s=outcome.received.now_s, timeout_s=timeout_s)
        return replace(self, ask=ask, doing="name")

    def _next_poll(self, outcome: Outcome, jitter: float) -> AzureWatch:
        due_s = self.core.due_s(self.began_s, outcome.received, jitter)
        ask = _ask(_EVENTS, at_s=due_s, timeout_s=self.core.patience_s)
        return replace(self, ask=ask, doing="events", began_s=due_s)


def _events(outcome: Outcome) -> list[Any]:
    """The events told, each with an id, a type and resources.

    Raises:
        ValueError: not a document of events; the message says why.
    """
    if not isinstance(outcome, Answer) or outcome.status != 200:
        raise ValueError(reason(outcome, "scheduled events"))
    try:
        told = json.loads(outcome.body)
        events = told["Events"]
        for event in events:
            if not all(isinstance(event[name], str) for name in ("EventId", "EventType")):
                raise TypeError("an event without id or type")
            _resources(event)
        return list(events)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        body = outcome.body[:80]
        raise ValueError(f"scheduled events: status 200, but {error!r}: {body!r}") from error


def _resources(event: Any) -> list[str]:
    return [resource.lower() for resource in event["Resources"]]


def _event(told: Any) -> Event:
    kind = told["EventType"]
    interruption = kind in _INTERRUPTIONS
    survives = not interruption and told.get("DurationInSeconds") == 0
    return Event(
        key=told["EventId"].lower(),
        kind="interruption" if interruption else "maintenance",
        action=kind.lower(),
        lead_s=LEADS_S.get(kind, max(LEADS_S.values())),
        at_wall_s=_time_s(str(told.get("NotBefore", ""))),
        started=told.get("EventStatus") == "Started",
        takes_node=kind in ("Reboot", "Redeploy", *_INTERRUPTIONS) and not survives,
    )


def _time_s(text: str) -> float | None:
    """As documented, or as a known mock tells it."""
    found = http_date_s(text)
    if found is not None or not text:
        return found
    try:
        return utc_s(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _name(outcome: Outcome) -> str:
    if not isinstance(outcome, Answer) or outcome.status != 200:
        raise ValueError(reason(outcome, "instance"))
    try:
        name = json.loads(outcome.body)["name"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"instance: status 200, but {error!r}") from error
    if not isinstance(name, str) or not name:
        raise ValueError(f"instance: its name is {name!r}")
    return name.lower()


def _ask(path: str, *, at_s: float, timeout_s: float) -> Ask:
    return Ask(request=Request(path=path, headers=_HEADERS, timeout_s=timeout_s), at_s=at_s)
