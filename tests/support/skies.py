"""A cloud and one node's watch of it, under virtual time: no socket, no thread, no waiting.

The cloud's answers are those of the metadata service's own pure cores, misbehaviour included.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from email.utils import formatdate
from itertools import count
from urllib.parse import parse_qsl, urlsplit

import msgspec

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import board, values
from chaosspot.services.metadata.misbehaving import (
    Active,
    Tally,
    bend,
    decide,
    resets_accept,
    spoil,
)
from chaosspot.services.metadata.server import PROVIDERS
from chaosspot.trainer.watch import values as w
from chaosspot.trainer.watch.detect import Provider, start

__all__ = ["BEGAN_S", "WALL_S", "Sky"]

BEGAN_S = 1000.0
WALL_S = 1_700_000_000.0  # the cloud's wall clock then; whole, as deadlines are


class Sky:
    """One cloud, one node in it, and what the node's watch has reported, with the time.

    Args:
        cloud: whose service it is.
        watch: what the node takes it for.
        settings: how the cloud is set up.
        skew_s: how far the node's wall clock is ahead of the cloud's.
        trip_s: from the node to the service, and back again.
        jitter: gives numbers from [0, 1).
    """

    def __init__(
        self,
        cloud: str,
        *,
        watch: Provider | None = None,
        pace: w.Pace | None = None,
        settings: values.Settings | None = None,
        skew_s: float = 0.0,
        trip_s: float = 0.001,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.provider = PROVIDERS[cloud]
        self.now_s = BEGAN_S
        self.reported: list[tuple[float, w.Report]] = []
        self.requests: list[tuple[float, w.Request]] = []
        self.told_s: list[float] = []  # when the service told of a notice
        self._documents = [
            self._document(number, settings or self.provider.Settings()) for number in range(2)
        ]
        self._skew_s, self._trip_s, self._jitter = skew_s, trip_s, jitter
        self._plans: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count(1)
        self._active: list[Active] = []
        self._tallies: dict[int, Tally] = {}
        self.watch = start(watch or cloud, pace or w.Pace(), self._moment())

    # --- what the cloud does ----------------------------------------------------------------

    def at(self, after_s: float, act: Callable[[], object]) -> None:
        """Do something so long after the start."""
        heapq.heappush(self._plans, (BEGAN_S + after_s, next(self._numbers), act))

    def publish(self, lead_s: float, action: str | None = None, *, other: bool = False) -> None:
        """Announce something to the node, or to the other one of its scale set."""
        notice = board.announce(
            [self._documents[other]],
            self.provider,
            self._cloud_moment(),
            number=next(self._numbers),
            action=action or next(iter(self.provider.ACTIONS)),
            lead_s=lead_s,
            lasts_s=None,
        )
        self._show((*self._documents[0].notices, notice))

    def withdraw(self) -> None:
        before = self._documents[0].notices
        self._show(board.close(before, "node-0", self.now_s, withdrawn=True))

    def misbehave(self, what: m.MisbehaviourKind) -> None:
        """From now on, until its ``lasts_s``."""
        self._active.append(Active(number=next(self._numbers), what=what, since_s=self.now_s))

    def behave(self) -> None:
        self._active.clear()

    def kill_tokens(self) -> None:
        key = b"k%d" % next(self._numbers)
        self._documents[0] = msgspec.structs.replace(self._documents[0], token_key=key)

    # --- what the node does -----------------------------------------------------------------

    def run(self, for_s: float) -> None:
        """Let so much time go by, counted from the start."""
        end_s = BEGAN_S + for_s
        while (at_s := max(self.now_s, self.watch.ask.at_s)) <= end_s:
            self._pass(at_s)
            outcome = self._exchange(self.watch.ask.request)
            self.watch, reports = self.watch.hear(outcome, self._jitter())
            self.reported += [(self.now_s - BEGAN_S, report) for report in reports]

    def of(self, *kinds: type) -> list[tuple[float, w.Report]]:
        """The reports of these kinds, each with the time since the start."""
        return [(at_s, report) for at_s, report in self.reported if isinstance(report, kinds)]

    def left_s(self, at_s: float, report: w.Notice | w.Maintenance) -> float:
        """What the report leaves of the time, by the node's own clock."""
        assert report.deadline_wall_s is not None
        return report.deadline_wall_s - (WALL_S + at_s + self._skew_s)

    # --- inside -----------------------------------------------------------------------------

    def _document(self, number: int, settings: values.Settings) -> values.Document:
        instance = values.Instance(
            node=f"node-{number}", zone="a", family="f", pool="spot", group="g"
        )
        region = self.provider.region(instance, default=self.provider.DEFAULT_REGION)
        return values.Document(
            instance=instance,
            run="",
            number=number,
            region=region,
            started_wall_s=WALL_S,
            settings=settings,
            token_key=b"k",
        )

    def _show(self, notices: tuple[values.Notice, ...]) -> None:
        self._documents = [
            msgspec.structs.replace(document, notices=notices) for document in self._documents
        ]

    def _moment(self) -> w.Moment:
        wall_s = WALL_S + self.now_s - BEGAN_S + self._skew_s
        return w.Moment(now_s=self.now_s, wall_s=wall_s)

    def _cloud_moment(self) -> values.Moment:
        return values.Moment(now_s=self.now_s, wall_s=WALL_S + self.now_s - BEGAN_S)

    def _pass(self, until_s: float) -> None:
        while self._plans and self._plans[0][0] <= until_s:
            at_s, _, act = heapq.heappop(self._plans)
            self.now_s = max(self.now_s, at_s)
            act()
        self.now_s = max(self.now_s, until_s)

    def _exchange(self, request: w.Request) -> w.Outcome:
        sent, deadline_s = self._moment(), self.now_s + request.timeout_s
        self.requests.append((self.now_s - BEGAN_S, request))
        answered = self._answer(request, deadline_s)
        if not isinstance(answered, str) and self.now_s + self._trip_s <= deadline_s:
            # the date is set when the answer is sent
            date = formatdate(self._cloud_moment().wall_s, usegmt=True)
            self._pass(self.now_s + self._trip_s)
            headers = {"date": date} | {k.lower(): v for k, v in answered.headers.items()}
            return w.Answer(
                status=answered.status,
                headers=headers,
                body=answered.body,
                sent=sent,
                received=self._moment(),
            )
        if isinstance(answered, str) and answered:
            return w.Failure(why=answered, sent=sent, received=self._moment())
        self._pass(deadline_s)
        why = "no answer in time"
        return w.Failure(why=why, timed_out=True, sent=sent, received=self._moment())

    def _answer(self, asked: w.Request, deadline_s: float) -> values.Response | str:
        """The response; else why there is none, empty when none ever comes."""
        self._pass(self.now_s + self._trip_s)
        url = urlsplit(asked.path)
        active = self._in_force()
        if self._is_closed():
            return "ConnectionRefusedError"
        struck, tallies = resets_accept(active, self._tallies, node="node-0", now_s=self.now_s)
        plan, more = decide(active, self._tallies, node="node-0", path=url.path, now_s=self.now_s)
        self._tallies |= tallies | more
        if struck:
            return "ConnectionResetError"
        request = values.Request(
            method=asked.method,
            path=url.path,
            headers={name.lower(): value for name, value in asked.headers.items()},
            query=tuple(parse_qsl(url.query, keep_blank_values=True)),
            asked_s=self.now_s,
        )
        if plan.black_hole or self.now_s + plan.delay_s > deadline_s:
            return ""
        self._pass(self.now_s + plan.delay_s)
        if plan.status is not None:
            response = self.provider.refusal(plan.status)
        else:
            document = self.provider.seen(request, self._documents[0], self._cloud_moment())
            self._documents[0] = document
            notices = bend(document, plan.bends).notices
            request = msgspec.structs.replace(request, asked_notices=notices)
            while True:
                document = bend(self._documents[0], plan.bends)
                found = self.provider.respond(request, document, self._cloud_moment())
                if not isinstance(found, values.Wait):
                    break
                if self.now_s >= deadline_s:
                    return ""
                planned_s = self._plans[0][0] if self._plans else deadline_s
                self._pass(min(found.until_s, planned_s, deadline_s))
                if self._is_closed():
                    return "ConnectionResetError"
            response = found
        response = spoil(response, plan, self.provider)
        if response.tells_notice:
            self.told_s.append(self.now_s - BEGAN_S)
        return "ConnectionResetError" if plan.reset else response

    def _is_closed(self) -> bool:
        return any(isinstance(entry.what, m.Closed) for entry in self._in_force())

    def _in_force(self) -> list[Active]:
        return [entry for entry in self._active if not entry.over(self.now_s)]
