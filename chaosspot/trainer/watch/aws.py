"""Watches AWS's instance metadata for what is to come of this node.

A cycle asks for the interruption notice and, in the time left until the next one, for one of the
other keys in turn. A token is kept while it works; refused, it is renewed and the notice asked for
again at once. Where no token can be had (a container behind the hop limit), the old way without
one is tried.

Sources: EC2 user guide ("spot interruption notices", "use IMDSv2", "scheduled events"); reports of
the AWS node termination handler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Self

from chaosspot.trainer.watch.book import Event
from chaosspot.trainer.watch.core import Core, http_date_s, reason, utc_s
from chaosspot.trainer.watch.values import Answer, Ask, Moment, Outcome, Pace, Report, Request

__all__ = ["AwsWatch", "instance_action", "maintenance_events"]

LEAD_S = 120.0
LIFECYCLE_LEAD_S = 30.0  # no time is told: a shutdown's, unless a lifecycle hook gives more
MAINTENANCE_LEAD_S = 900.0

_TOKEN_TTL_S = 21600
_TOKEN = "/latest/api/token"
_META = "/latest/meta-data/"
_NOTICE = "spot/instance-action"
_REBALANCE = "events/recommendations/rebalance"
_LIFECYCLE = "autoscaling/target-lifecycle-state"
_MAINTENANCE = "events/maintenance/scheduled"
_SIDES = (_REBALANCE, _LIFECYCLE, _MAINTENANCE)
_RETRY_TOKEN_CYCLES = 30  # without tokens, how often one is asked for again
_SHORTEST_SIDE = 0.1  # of the interval: no room for another question in less


def instance_action(body: bytes) -> Event:
    """The event in a 200 answer of ``spot/instance-action``.

    Raises:
        ValueError: not the documented ``{"action": ..., "time": "2017-09-18T08:22:00Z"}``.
    """
    told = json.loads(body)
    if not isinstance(told, dict) or not isinstance(told.get("action"), str):
        raise ValueError("not an instance action")
    at = datetime.strptime(str(told.get("time")), "%Y-%m-%dT%H:%M:%SZ")
    action = told["action"]
    return Event(
        key=action,  # the document has no id, and its time is not always the same
        kind="interruption",
        action=action,
        lead_s=0.0 if action == "hibernate" else LEAD_S,  # hibernation begins at once
        at_wall_s=utc_s(at),
    )


def maintenance_events(body: bytes) -> list[Event]:
    """The active events in a 200 answer of ``events/maintenance/scheduled``.

    Raises:
        ValueError: not a list of the documented objects.
    """
    told = json.loads(body)
    if not isinstance(told, list):
        raise ValueError("not a list of events")
    return [_maintenance(event) for event in told if _field(event, "State") == "active"]


def _maintenance(event: Any) -> Event:
    code, identity, start = (_field(event, name) for name in ("Code", "EventId", "NotBefore"))
    at_wall_s = http_date_s(start)
    if at_wall_s is None:
        raise ValueError("an event without its time")
    return Event(
        key=identity,
        kind="maintenance",
        action=code,
        lead_s=MAINTENANCE_LEAD_S,
        at_wall_s=at_wall_s,
        takes_node=code != "system-maintenance",  # of power or network; the instance stays
    )


def _rebalance(body: bytes) -> list[Event]:
    told = json.loads(body)
    if not isinstance(told, dict) or "noticeTime" not in told:
        raise ValueError("not a recommendation")
    return [Event(key="rebalance", kind="advice", action="rebalance")]


def _lifecycle(body: bytes) -> list[Event]:
    if body.strip() not in (b"Terminated", b"Warmed:Terminated"):
        return []
    terminated = Event(
        key="terminated", kind="interruption", action="asg-terminate", lead_s=LIFECYCLE_LEAD_S
    )
    return [terminated]


_READ: dict[str, Callable[[bytes], list[Event]]] = {
    _NOTICE: lambda body: [instance_action(body)],
    _REBALANCE: _rebalance,
    _LIFECYCLE: _lifecycle,
    _MAINTENANCE: maintenance_events,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AwsWatch:
    """Where the watch stands.

    Args:
        doing: which question is open: for a token, for the notice, for another key, or for a
            token where there has been none.
        began_s: when the present cycle began (monotonic).
        token: None where there is none.
        minted: a token was asked for in this cycle.
        refusal: why there is no token; empty when none was asked for.
        cycle: counts cycles.
        turn: counts questions for other keys: whose turn it is.
    """

    core: Core
    ask: Ask
    doing: Literal["token", "notice", "side", "retry"]
    began_s: float
    token: str | None = None
    minted: bool = False
    refusal: str = ""
    cycle: int = 0
    turn: int = 0

    @classmethod
    def start(cls, pace: Pace, began: Moment) -> Self:
        core = Core.start("aws", pace, began)
        ask = _ask_token(at_s=began.now_s, timeout_s=core.patience_s)
        return cls(core=core, ask=ask, doing="token", began_s=began.now_s, minted=True)

    def hear(self, outcome: Outcome, jitter: float) -> tuple[AwsWatch, tuple[Report, ...]]:
        match self.doing:
            case "token":
                token, refusal = _token(outcome)
                after = replace(
                    self, core=self.core.heard(outcome), token=token, refusal=refusal, minted=True
                )
                return after._asking_notice(at_s=outcome.received.now_s), ()
            case "notice":
                return self._heard_notice(outcome, jitter)
            case "side":
                return self._heard_side(outcome, jitter)
            case "retry":
                token, refusal = _token(outcome)
                after = replace(self, token=token, refusal=refusal)
                return after._next_cycle(outcome, jitter), ()

    def _heard_notice(self, outcome: Outcome, jitter: float) -> tuple[AwsWatch, tuple[Report, ...]]:
        if isinstance(outcome, Answer) and outcome.status == 401:
            after = replace(self, token=None)
            if not self.minted:
                return after._asking_token(at_s=outcome.received.now_s), ()
            why = f"status 401 without a token: {self.refusal}"
            if self.token is not None:
                why = "status 401 with a fresh token"
            core, reports = self.core.failed(outcome, why)
            # no way without a token: the next cycle begins by asking for one
            return replace(after, core=core, refusal="")._next_cycle(outcome, jitter), reports
        try:
            events = _read(_NOTICE, outcome)
        except ValueError as error:
            core, reports = self.core.failed(outcome, str(error))
            return replace(self, core=core, refusal="")._next_cycle(outcome, jitter), reports
        assert isinstance(outcome, Answer)
        core, reports = self.core.shown(outcome, _NOTICE, events, matters=True)
        return replace(self, core=core)._asking_side(outcome, jitter), reports

    def _heard_side(self, outcome: Outcome, jitter: float) -> tuple[AwsWatch, tuple[Report, ...]]:
        path, after = self.ask.request.path.removeprefix(_META), replace(self, turn=self.turn + 1)
        try:
            events = _read(path, outcome)
        except ValueError:  # its turn comes again; what matters is asked for next
            return after._next_cycle(outcome, jitter), ()
        assert isinstance(outcome, Answer)
        core, reports = self.core.shown(outcome, path, events)
        return replace(after, core=core)._next_cycle(outcome, jitter), reports

    def _asking_token(self, *, at_s: float) -> AwsWatch:
        ask = _ask_token(at_s=at_s, timeout_s=self.core.patience_s)
        return replace(self, ask=ask, doing="token", minted=True)

    def _asking_notice(self, *, at_s: float) -> AwsWatch:
        return replace(self, ask=self._get(_NOTICE, at_s, self.core.patience_s), doing="notice")

    def _asking_side(self, outcome: Outcome, jitter: float) -> AwsWatch:
        at_s = outcome.received.now_s
        room_s = self.core.due_s(self.began_s, outcome.received, jitter) - at_s
        if room_s < _SHORTEST_SIDE * self.core.pace.interval_s:
            return self._next_cycle(outcome, jitter)
        timeout_s = min(self.core.patience_s, room_s)
        if self.token is None and self.cycle % _RETRY_TOKEN_CYCLES == _RETRY_TOKEN_CYCLES - 1:
            return replace(self, ask=_ask_token(at_s=at_s, timeout_s=timeout_s), doing="retry")
        path = _SIDES[self.turn % len(_SIDES)]
        return replace(self, ask=self._get(path, at_s, timeout_s), doing="side")

    def _next_cycle(self, outcome: Outcome, jitter: float) -> AwsWatch:
        due_s = self.core.due_s(self.began_s, outcome.received, jitter)
        after = replace(self, began_s=due_s, cycle=self.cycle + 1, minted=False)
        if self.token is None and not self.refusal:
            return after._asking_token(at_s=due_s)
        return after._asking_notice(at_s=due_s)

    def _get(self, path: str, at_s: float, timeout_s: float) -> Ask:
        headers = {} if self.token is None else {"X-aws-ec2-metadata-token": self.token}
        return Ask(
            request=Request(path=_META + path, headers=headers, timeout_s=timeout_s), at_s=at_s
        )


def _ask_token(*, at_s: float, timeout_s: float) -> Ask:
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
    request = Request(method="PUT", path=_TOKEN, headers=headers, timeout_s=timeout_s)
    return Ask(request=request, at_s=at_s)


def _token(outcome: Outcome) -> tuple[str | None, str]:
    """The token, or why there is none."""
    if not isinstance(outcome, Answer) or outcome.status != 200:
        return None, reason(outcome, "token")
    text = outcome.body.decode("ascii", "replace").strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        return None, "token: the answer is none"
    return text, ""


def _read(path: str, outcome: Outcome) -> list[Event]:
    """The events that an answer for ``path`` shows.

    Raises:
        ValueError: it is not one of the documented ones; the message says why.
    """
    if not isinstance(outcome, Answer) or outcome.status not in (200, 404):
        raise ValueError(reason(outcome, path))
    if outcome.status == 404:  # whatever its body is: it is a page
        return []
    try:
        return _READ[path](outcome.body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: status 200, but {error}: {outcome.body[:80]!r}") from error


def _field(event: Any, name: str) -> str:
    found = event.get(name) if isinstance(event, dict) else None
    if not isinstance(found, str):
        raise ValueError(f"an event without its {name}")
    return found
