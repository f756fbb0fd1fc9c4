"""A trace as a schedule: what happened to some cluster, cut, scaled to another, and hurried.

A loss becomes a kill, or a notice where a lead is given; nodes that come in the same moment are
its replacements, others a growth. A trace is taken to say how many go and come, and not which:
the seed decides that, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

import msgspec
import numpy as np

from chaosspot.checked import above_0, at_least_0, at_least_1
from chaosspot.schedule import (
    ClusterSpec,
    FaultKind,
    Group,
    Grow,
    Kill,
    Notice,
    Schedule,
    Target,
    Trigger,
)
from chaosspot.traces.trace import Trace, TraceError
from chaosspot.words import CONTROL, count

__all__ = ["Change", "planned", "scaled"]

_ZONES = ("a", "b")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """At ``t_s`` seconds so many nodes of a cluster go and so many come."""

    t_s: float
    lost: int
    gained: int


def planned(
    trace: Trace,
    *,
    nodes: int,
    speed: float = 1.0,
    from_s: float = 0.0,
    to_s: float | None = None,
    lead_s: float | None = None,
) -> Schedule:
    """The schedule that does to ``nodes`` nodes what a part of ``trace`` did to its own.

    Args:
        trace: what happened; its largest number of nodes in that part stands for ``nodes``.
        nodes: the most that the cluster has at a time. It starts with its share of these.
        speed: so many times as fast: gaps between events are shortened.
        from_s: where the part begins, in seconds of the trace.
        to_s: where it ends; the trace's end by default.
        lead_s: losses are announced so many seconds ahead, whatever the speed: everything then
            happens so much later. A node that is not there yet when its notice would have to come
            goes without one. By default no loss is announced.

    Raises:
        TraceError: there is no such part, nothing happens in it, or no node is there at its start.
        ValueError: a number makes no sense.
    """
    at_least_1(nodes=nodes)
    above_0(speed=speed)
    if lead_s is not None:
        at_least_0(lead_s=lead_s)
    if to_s is not None and to_s > trace.end_s:
        raise TraceError(f"{trace.name}: to {to_s:g} s is after its end at {trace.end_s:g} s")
    part = _part(trace, from_s, to_s)
    start, changes = scaled(part, nodes)
    what = f"{trace.name}, from {from_s:g} s to {from_s + part.end_s:g} s"
    if not start:
        raise TraceError(f"{what}: {_no_start(trace, part, nodes)}")
    if not changes:
        raise TraceError(f"{what}: nothing happens to {count(nodes, 'node')}: there is no attack")
    hurried = [msgspec.structs.replace(c, t_s=round(c.t_s / speed, 3)) for c in changes]
    faults = _kills(hurried) if lead_s is None else _announced(start, hurried, lead_s)
    stem = CONTROL.sub("?", PurePath(trace.name).name)
    hours = f"{from_s / 3600:g} h to {(from_s + part.end_s) / 3600:.4g} h"
    lost = sum(change.lost for change in changes)
    return Schedule(
        title=f"{stem} from {hours}, {speed:g} times as fast, on {count(nodes, 'node')}",
        source=f"{CONTROL.sub('?', trace.name)} (licence: {CONTROL.sub('?', trace.licence)})",
        imitates=(
            f"What a trace shows of {count(part.most_nodes, 'node')}, in proportion: "
            f"{count(lost, 'node')} lost in {count(sum(c.lost > 0 for c in changes), 'moment')}."
        ),
        does_not_prove=_limits(part, speed),
        cluster=ClusterSpec(group=(Group(count=start, zones=_ZONES),)),
        fault=tuple(faults),
    )


def scaled(part: Trace, nodes: int) -> tuple[int, list[Change]]:
    """How many of ``nodes`` nodes there are at the start, and what changes that.

    After each change their number is the trace's in proportion, rounded; and so is the number of
    all that had been lost until then and were replaced in the moment of their loss.
    """
    scale = nodes / part.most_nodes if part.most_nodes else 0.0
    here = start = _rounded(int(part.counts[0]) * scale)
    changes: list[Change] = []
    replaced = np.maximum(0, part.lost[1:] - np.maximum(0, -np.diff(part.counts)))
    made = 0  # of these, so many
    moments = zip(part.times_s[1:], part.counts[1:], np.cumsum(replaced), strict=True)
    for t_s, there, owed in moments:
        then = _rounded(int(there) * scale)
        fewer = max(0, here - then)
        more = min(here - fewer, _rounded(int(owed) * scale) - made)
        comes = then - (here - fewer - more)
        made += more
        here = then
        if fewer or more or comes:
            changes.append(Change(t_s=float(t_s), lost=fewer + more, gained=comes))
    return start, changes


def _part(trace: Trace, from_s: float, to_s: float | None) -> Trace:
    """As :meth:`Trace.cut`, with what happens in its last moment."""
    part = trace.cut(from_s=from_s, to_s=to_s)
    last = np.flatnonzero(trace.times_s == from_s + part.end_s)
    if not len(last):
        return part
    return replace(
        part,
        times_s=np.append(part.times_s, part.end_s),
        counts=np.append(part.counts, trace.counts[last]),
        lost=np.append(part.lost, trace.lost[last]),
    )


def _kills(changes: list[Change]) -> Iterator[FaultKind]:
    for change in changes:
        on = Trigger(at_s=change.t_s)
        replaced = change.lost > 0 and change.lost == change.gained
        if change.lost:
            target = Target(count=change.lost)
            yield Kill(on=on, target=target, replace_after_s=0.0 if replaced else None)
        if change.gained and not replaced:
            yield Grow(on=on, count=change.gained)


def _announced(start: int, changes: list[Change], lead_s: float) -> Iterator[FaultKind]:
    """The same, so much later, with notices at the times themselves."""
    later = bool(lead_s)  # what comes first of two that come at once: who goes is there no more
    moments = [(c.t_s, later, number, True) for number, c in enumerate(changes)]
    moments += [(c.t_s + lead_s, not later, number, False) for number, c in enumerate(changes)]
    here, told = start, 0
    unannounced: dict[int, int] = {}
    for t_s, _, number, ahead in sorted(moments):
        change = changes[number]
        on = Trigger(at_s=round(t_s, 3))
        if ahead:
            announced = min(change.lost, here - told)
            told += announced
            unannounced[number] = change.lost - announced
            if announced:
                yield Notice(on=on, target=Target(count=announced), lead_s=lead_s)
            continue
        sudden = unannounced[number]
        here += change.gained - change.lost
        told -= change.lost - sudden
        if sudden:
            yield Kill(on=on, target=Target(count=sudden))
        if change.gained:
            yield Grow(on=on, count=change.gained)


def _no_start(trace: Trace, part: Trace, nodes: int) -> str:
    """Why there is nobody to begin with, and what to do about it."""
    there = part.times_s[np.nonzero(part.counts)[0]]
    if not len(there):
        why = "there is no node at any time"
    else:
        why = (
            f"{int(part.counts[0])} nodes at its start are none of {nodes} in proportion; "
            f"{int(part.counts[np.nonzero(part.counts)[0][0]])} are there {there[0]:g} s later"
        )
    if trace.most_nodes <= 1 and not trace.held:
        why += "; is its polarity right (one_means)?"
    return why


def _limits(part: Trace, speed: float) -> str:
    limits = ["Which nodes go together: a trace of numbers does not say, and the seed decides."]
    if speed > 1:
        limits.append(f"What a job gets done between two losses: gaps are {speed:g} times shorter.")
    if not part.held:
        limits.append("That nodes were lost: the trace was probed, and a drop is no kill.")
    return " ".join(limits)


def _rounded(number: float) -> int:
    return math.floor(number + 0.5)
