"""Which misbehaviours strike a request: pure functions.

Whether one strikes is decided by hashing its seed, the node, the class of the request and its
number in that class, so that neither threads nor other nodes or misbehaviours change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

import msgspec

from chaosspot import store_misbehaviour as m
from chaosspot.schedule import draw
from chaosspot.store_misbehaviour import Operation

__all__ = ["Active", "Plan", "Strike", "Tallies", "Tally", "decide"]


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """A misbehaviour that is in force since ``since_s`` (monotonic), under a number of its own."""

    number: int
    what: m.StoreMisbehaviourKind
    since_s: float

    def over(self, now_s: float) -> bool:
        return self.what.lasts_s is not None and now_s >= self.since_s + self.what.lasts_s


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that matched: in all, and in the present second."""

    count: int = 0
    second: int = 0
    in_second: int = 0

    def next(self, now_s: float) -> Tally:
        second = int(now_s)
        before = self.in_second if second == self.second else 0
        return Tally(count=self.count + 1, second=second, in_second=before + 1)


# By the misbehaviour's number, the node ("" for all) and the class ("" for all).
Tallies: TypeAlias = Mapping[tuple[int, str, str], Tally]


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A misbehaviour that strikes; ``share`` in [0, 1) decides what else there is to decide."""

    number: int
    what: m.StoreMisbehaviourKind
    share: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to one request. A refusal is all that its client sees of the others."""

    refusal: Strike | None = None
    delays: tuple[Strike, ...] = ()
    lost: Strike | None = None
    truncated: Strike | None = None
    flip: Strike | None = None


def decide(
    active: Sequence[Active],
    tallies: Tallies,
    *,
    node: str,
    operation: Operation,
    key: str,
    now_s: float,
) -> tuple[Plan, dict[tuple[int, str, str], Tally]]:
    """The plan for a request, and the tallies that it changed.

    Delays add up; of the others of one kind, and of all that refuse, the first in force counts.
    """
    changed: dict[tuple[int, str, str], Tally] = {}
    done: dict[str, Strike] = {}
    delays = []
    for entry in active:
        what = entry.what
        if not _matches(what, node, operation, key) or entry.over(now_s):
            continue
        for where in ((node, operation), (node, ""), ("", "")):
            at = (entry.number, *where)
            changed[at] = tallies.get(at, Tally()).next(now_s)
        in_class = changed[entry.number, node, operation].count
        if what.first is not None and changed[entry.number, node, ""].count > what.first:
            continue
        above = what.above_per_s if isinstance(what, m.SlowDown) else None
        if above is not None and changed[entry.number, "", ""].in_second <= above:
            continue
        if what.rate < 1.0 and draw(what.seed, node, operation, in_class) >= what.rate:
            continue
        share = draw(what.seed, node, operation, in_class, "share")
        strike = Strike(number=entry.number, what=what, share=share)
        match what:
            case m.SlowFirstByte():
                delays.append(strike)
            case m.Truncated():
                done.setdefault("truncated", strike)
            case m.LostReply():
                done.setdefault("lost", strike)
            case m.BitFlip():
                done.setdefault("flip", strike)
            case _:
                done.setdefault("refusal", strike)
    return Plan(delays=tuple(delays), **done), changed


def _matches(what: m.StoreMisbehaviourKind, node: str, operation: Operation, key: str) -> bool:
    return (
        operation in (what.operations or what.POSSIBLE)
        and fnmatchcase(node, what.nodes)
        and fnmatchcase(key, what.keys)
    )
