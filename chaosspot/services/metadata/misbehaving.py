"""Which misbehaviours strike a request, and what they do to an answer: pure functions.

Whether one strikes is decided by hashing its seed, the node and the number of the request, so
that neither the order of the nodes nor other misbehaviours change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from chaosspot import misbehaviour as m
from chaosspot.schedule import draw
from chaosspot.services.metadata.values import Document, Notice, Provider, Response

__all__ = ["Active", "Plan", "Tally", "bend", "decide", "matches_node", "resets_accept", "spoil"]

_PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body>Sign in</body></html>\n"


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """A misbehaviour that is in force since ``since_s`` (monotonic), under a number of its own."""

    number: int
    what: m.MisbehaviourKind
    since_s: float

    def over(self, now_s: float) -> bool:
        return self.what.lasts_s is not None and now_s >= self.since_s + self.what.lasts_s


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one node that one misbehaviour matched, also in this second, and struck."""

    count: int = 0
    second: int = 0
    in_second: int = 0
    struck: int = 0

    def next(self, now_s: float) -> Tally:
        second = int(now_s)
        before = self.in_second if second == self.second else 0
        return msgspec.structs.replace(
            self, count=self.count + 1, second=second, in_second=before + 1
        )

    def strike(self) -> Tally:
        return msgspec.structs.replace(self, struck=self.struck + 1)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to one request."""

    delay_s: float = 0.0
    black_hole: bool = False
    reset: Literal["head", "body"] | None = None
    status: int | None = None
    body: Literal["html", "empty"] | None = None
    content_type: str | None = None
    bends: tuple[m.MisbehaviourKind, ...] = ()

    def and_then(self, later: Plan) -> Plan:
        """Both, for a request that waited when the later misbehaviours began."""
        changed = {
            field: getattr(later, field) or getattr(self, field)
            for field in ("black_hole", "reset", "status", "body", "content_type")
        }
        bends = (*self.bends, *later.bends)
        return Plan(delay_s=self.delay_s + later.delay_s, bends=bends, **changed)


def matches_node(what: m.MisbehaviourKind, node: str) -> bool:
    return fnmatchcase(node, what.nodes)


def decide(
    active: Sequence[Active],
    tallies: Mapping[int, Tally],
    *,
    node: str,
    path: str,
    now_s: float,
    after: int = -1,
) -> tuple[Plan, dict[int, Tally]]:
    """The plan for a request, and the node's tallies after it (by the misbehaviours' numbers).

    Only those with a number beyond ``after`` are looked at. Delays add up; of others of one kind
    the last counts.
    """
    changed = {}
    done: dict[str, object] = {}
    delay_s, bends = 0.0, []
    for entry in active:
        what = entry.what
        if entry.number <= after:
            continue
        if isinstance(what, m.Closed) or (isinstance(what, m.Reset) and what.stage == "accept"):
            continue
        if not (matches_node(what, node) and fnmatchcase(path, what.paths)):
            continue
        tally = tallies.get(entry.number, Tally()).next(now_s)
        changed[entry.number] = tally
        if entry.over(now_s) or not _strikes(what, node, tally):
            continue
        changed[entry.number] = tally.strike()
        match what:
            case m.Latency():
                delay_s += what.delay_s
                delay_s += what.jitter_s * draw(what.seed, node, tally.count, "jitter")
            case m.Status():
                done["status"] = what.status
            case m.Body():
                done["body"] = what.body
            case m.ContentType():
                done["content_type"] = what.content_type
            case m.Reset():
                done["reset"] = what.stage
            case m.BlackHole():
                done["black_hole"] = True
            case _:
                bends.append(what)
    plan = msgspec.structs.replace(Plan(delay_s=delay_s, bends=tuple(bends)), **done)
    return plan, changed


def resets_accept(
    active: Sequence[Active], tallies: Mapping[int, Tally], *, node: str, now_s: float
) -> tuple[bool, dict[int, Tally]]:
    """Whether a connection is reset as it is accepted, and the node's tallies after it."""
    changed, struck = {}, False
    for entry in active:
        what = entry.what
        if isinstance(what, m.Reset) and what.stage == "accept" and matches_node(what, node):
            tally = tallies.get(entry.number, Tally()).next(now_s)
            strikes = not entry.over(now_s) and _strikes(what, node, tally)
            changed[entry.number] = tally.strike() if strikes else tally
            struck |= strikes
    return struck, changed


def _strikes(what: m.MisbehaviourKind, node: str, tally: Tally) -> bool:
    if what.first is not None and tally.count > what.first:
        return False
    above = what.above_per_s if isinstance(what, m.Status) else None
    if above is not None and tally.in_second <= above:
        return False
    return what.rate >= 1.0 or draw(what.seed, node, tally.count) < what.rate


def bend(document: Document, bends: Sequence[m.MisbehaviourKind]) -> Document:
    """The document as a service that misbehaves so would have it."""
    for what in bends:
        if isinstance(what, m.TokenKill):
            life_s = min(document.token_life_s, what.after_s)
            document = msgspec.structs.replace(document, token_life_s=life_s)
        else:
            notices = tuple(_bent(notice, what) for notice in document.notices)
            document = msgspec.structs.replace(document, notices=notices)
    return document


def _bent(notice: Notice, what: m.MisbehaviourKind) -> Notice:
    replace = msgspec.structs.replace
    match what:
        case m.Skew():
            return replace(
                notice,
                issued_wall_s=notice.issued_wall_s + what.skew_s,
                deadline_wall_s=notice.deadline_wall_s + what.skew_s,
            )
        case m.FarFuture():
            return replace(
                notice,
                starts_s=notice.starts_s + what.ahead_s,
                deadline_wall_s=notice.deadline_wall_s + what.ahead_s,
            )
        case m.Withdraw():
            gone_s = min(notice.closed_s, notice.visible_s + what.after_s)
            return replace(notice, closed_s=gone_s, withdrawn=True)
        case m.Duplicate():
            return replace(notice, repeat_every_s=what.every_s)
    return notice


def spoil(response: Response, plan: Plan, provider: Provider) -> Response:
    """The answer as it is sent; what it does not tell any more is not counted as read."""
    if plan.status is not None:
        response = provider.refusal(plan.status)
    if plan.body is not None:
        kind = {"Content-Type": "text/html"} if plan.body == "html" else {}
        response = Response(
            status=200,
            headers=response.headers | kind,
            body=_PAGE if plan.body == "html" else b"",
        )
    if plan.content_type is not None:
        headers = response.headers | {"Content-Type": plan.content_type}
        response = msgspec.structs.replace(response, headers=headers)
    if plan.reset is not None:
        response = msgspec.structs.replace(response, tells_notice=False)
    return response
