"""Which events a provider shows for this node, and what is new about them: a pure function.

An event is reported once, whatever the provider repeats, renumbers or dates anew, as long as it
is shown. It is held while it is further ahead than the provider's lead, and reported as withdrawn
when it is not shown any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from chaosspot.trainer.watch.values import (
    Advice,
    Held,
    Maintenance,
    Moment,
    Notice,
    Report,
    Withdrawn,
)

__all__ = ["Entry", "Event", "Sight", "see"]

# An interruption advertised for later than its lead is due at its lead: a clock is wrong. Further
# ahead than by so much, no clock is: it is an announcement for another day.
_CLOCKS_DIFFER_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing a provider announces to this node.

    Args:
        key: the same for as long as it is the same event.
        lead_s: the longest time the provider gives between showing it and doing it; of
            maintenance, how long before it starts is early enough to act.
        at_wall_s: when it happens, as advertised; None: no time is told.
        started: it is under way, there is no time left.
        takes_node: nothing that runs here survives it.
    """

    key: str
    kind: Literal["interruption", "maintenance", "advice"]
    action: str
    lead_s: float = math.inf
    at_wall_s: float | None = None
    started: bool = False
    takes_node: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An event that is shown; ``told`` is its report, None while it is held."""

    source: str
    key: str
    told: Notice | Maintenance | Advice | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """How something was seen.

    Args:
        at: when, by this node's clocks.
        first_s: since when it may have been there unseen (monotonic).
        ahead_s: how far the provider's wall clock is ahead of this node's.
        margin_s: taken off every time left.
    """

    provider: str
    at: Moment
    first_s: float
    ahead_s: float
    margin_s: float


def see(
    entries: tuple[Entry, ...], source: str, events: Iterable[Event], sight: Sight
) -> tuple[tuple[Entry, ...], tuple[Report, ...]]:
    """The entries after ``source`` showed exactly ``events``, and what is to be reported."""
    before = {entry.key: entry for entry in entries if entry.source == source}
    after: dict[str, Entry] = {}
    reports: list[Report] = []
    for event in events:
        if event.key in after:  # listed twice
            continue
        entry = before.pop(event.key, None)
        if entry is None:
            entry, report = _met(event, source, sight)
            reports.append(report)
        elif entry.told is None and (told := _released(event, sight)):
            entry = replace(entry, told=told)
            reports.append(told)
        after[event.key] = entry
    reports += [Withdrawn(what=gone.told) for gone in before.values() if gone.told]
    others = tuple(entry for entry in entries if entry.source != source)
    return (*others, *after.values()), tuple(reports)


def _met(event: Event, source: str, sight: Sight) -> tuple[Entry, Report]:
    left_s = _left_s(event, sight)
    slack_s = _CLOCKS_DIFFER_S if event.kind == "interruption" else 0.0
    if event.at_wall_s is not None and left_s > event.lead_s + slack_s:
        entry = Entry(source=source, key=event.key, told=None)
        held = Held(provider=sight.provider, action=event.action, advertised_wall_s=event.at_wall_s)
        return entry, held
    unseen_s = sight.at.now_s - sight.first_s
    report = _report(event, sight, min(left_s, event.lead_s - unseen_s))
    return Entry(source=source, key=event.key, told=report), report


def _released(event: Event, sight: Sight) -> Notice | Maintenance | Advice | None:
    left_s = _left_s(event, sight)
    return _report(event, sight, left_s) if left_s <= event.lead_s else None


def _left_s(event: Event, sight: Sight) -> float:
    if event.started:
        return 0.0
    if event.at_wall_s is None:
        return math.inf
    return event.at_wall_s - sight.at.wall_s - sight.ahead_s


def _report(event: Event, sight: Sight, left_s: float) -> Notice | Maintenance | Advice:
    provider, action, advertised = sight.provider, event.action, event.at_wall_s
    if event.kind == "advice":
        return Advice(provider=provider, action=action)
    deadline_wall_s = sight.at.wall_s + max(0.0, left_s - sight.margin_s)
    if event.kind == "interruption":
        return Notice(
            provider=provider,
            action=action,
            deadline_wall_s=deadline_wall_s,
            advertised_wall_s=advertised,
        )
    return Maintenance(
        provider=provider,
        action=action,
        deadline_wall_s=deadline_wall_s if event.takes_node else None,
        advertised_wall_s=advertised,
    )
