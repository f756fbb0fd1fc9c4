"""How many nodes were there, and when some were lost: one value for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chaosspot.checked import above_0

__all__ = [
    "Array",
    "Counts",
    "Flags",
    "Ticks",
    "Trace",
    "TraceError",
    "cut_to_shortest",
    "joined_ticks",
    "whole",
]

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_DAY_S = 86400.0
_MOST_NODES = 10**9  # sums of node-seconds stay exact
_MOST_TICKS = 10**8


class TraceError(ValueError):
    """A trace cannot be read, or does not hold what is asked of it."""


def whole(numbers: Sequence[int], name: str) -> Counts:
    """Numbers of nodes as an array.

    Raises:
        TraceError: one is negative, or more than a billion.
    """
    for number in (min(numbers), max(numbers)):
        if not 0 <= number <= _MOST_NODES:
            raise TraceError(f"{name}: holds a count of {number}: 0 to {_MOST_NODES}")
    return np.array(numbers, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """``counts[i]`` nodes from ``times_s[i]`` until the next time, the last until ``end_s``.

    ``lost[i]`` nodes were lost at ``times_s[i]``, all at one moment: one event. ``held`` says
    whether nodes were held, and losses are reclaims; else each count is what a launch would have
    obtained, and a drop is no kill. ``licence`` is what the source states. Times are seconds from
    the start of the trace.

    Raises:
        TraceError: there is nothing in it, times do not rise, or numbers are negative.
    """

    name: str
    times_s: Array
    counts: Counts
    lost: Counts
    end_s: float
    held: bool
    licence: str = "not stated"

    def __post_init__(self) -> None:
        if not len(self.times_s) or not len(self.times_s) == len(self.counts) == len(self.lost):
            raise TraceError(f"{self.name}: there is nothing in this trace")
        if not (np.isfinite(self.times_s).all() and np.isfinite(self.end_s)):
            raise TraceError(f"{self.name}: a time is not finite")
        if self.times_s[0] != 0 or np.any(np.diff(self.times_s) <= 0):
            raise TraceError(f"{self.name}: times must start at 0 and rise")
        if not self.end_s > self.times_s[-1] and not (self.end_s == self.times_s[-1] > 0):
            raise TraceError(f"{self.name}: it ends at {self.end_s} s, before its last entry")
        if np.any(self.counts < 0) or np.any(self.lost < 0):
            raise TraceError(f"{self.name}: a number of nodes is negative")

    @property
    def days(self) -> float:
        return self.end_s / _DAY_S

    @property
    def most_nodes(self) -> int:
        return int(self.counts.max())

    @property
    def mean_nodes(self) -> float:
        """Over time."""
        return float(self.node_s(np.array([0.0, self.end_s]))[1]) / self.end_s

    @property
    def events(self) -> int:
        """Moments at which nodes were lost."""
        return int(np.count_nonzero(self.lost))

    @property
    def gained(self) -> Counts:
        """Nodes that came at each of the times, besides those that were lost then."""
        came: Counts = np.diff(self.counts, prepend=0) + self.lost
        return came

    def at(self, t_s: Array) -> Counts:
        """How many nodes there were at these times, after what happened then."""
        found: Counts = self.counts[np.searchsorted(self.times_s, t_s, side="right") - 1]
        return found

    def node_s(self, t_s: Array) -> Array:
        """Node-seconds from the start to each of these times."""
        edges = np.append(self.times_s, self.end_s)
        filled = np.concatenate([[0.0], np.cumsum(self.counts * np.diff(edges))])
        found: Array = np.interp(t_s, edges, filled)
        return found

    def cut(self, *, from_s: float = 0.0, to_s: float | None = None) -> Trace:
        """The part between two times, counted from its own start; nothing is lost at that start.

        Raises:
            TraceError: there is no such part.
        """
        until_s = self.end_s if to_s is None else min(to_s, self.end_s)
        if not 0 <= from_s < until_s:
            raise TraceError(f"{self.name}: no part from {from_s} s to {to_s} s of {self.end_s} s")
        inside = (self.times_s > from_s) & (self.times_s < until_s)
        first = self.at(np.array([from_s]))
        return Trace(
            name=self.name,
            times_s=np.concatenate([[0.0], self.times_s[inside] - from_s]),
            counts=np.concatenate([first, self.counts[inside]]),
            lost=np.concatenate([[0], self.lost[inside]]),
            end_s=until_s - from_s,
            held=self.held,
            licence=self.licence,
        )

    def ticks(self, tick_s: float) -> Ticks:
        """Nodes up before each tick and lost within it; those that came and went within one tick
        were not up before it and do not count.

        Raises:
            ValueError: ``tick_s`` is not positive.
        """
        above_0(tick_s=tick_s)
        if self.end_s / tick_s > _MOST_TICKS:
            raise ValueError(f"tick_s = {tick_s!r}: more than {_MOST_TICKS:,} ticks in {self.name}")
        number = int(self.end_s // tick_s) + 1
        index = np.minimum(self.times_s // tick_s, number - 1).astype(np.int64)
        lost = np.bincount(index, weights=self.lost, minlength=number).astype(np.int64)
        before = np.searchsorted(self.times_s, np.arange(number) * tick_s, side="left") - 1
        up = np.where(before < 0, 0, self.counts[np.maximum(before, 0)])
        return Ticks(up=up, lost=np.minimum(lost, up), tick_s=tick_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ticks:
    """``lost[i]`` of ``up[i]`` nodes within each span of ``tick_s`` seconds."""

    up: Counts
    lost: Counts
    tick_s: float

    def from_full(self, nodes: int) -> Ticks:
        """Those that started with exactly ``nodes`` up."""
        full = self.up == nodes
        return Ticks(up=self.up[full], lost=self.lost[full], tick_s=self.tick_s)

    def seen_at_least(self, lost: int) -> float:
        """Share of ticks in which at least ``lost`` nodes went; 0 where there are no ticks."""
        return float(np.mean(self.lost >= lost)) if len(self.lost) else 0.0


def cut_to_shortest(traces: list[Trace]) -> list[Trace]:
    """Traces of one set, all as long as the shortest: public sets hold zones of unequal length.

    Raises:
        TraceError: there are none.
    """
    if not traces:
        raise TraceError("no traces were given")
    end_s = min(trace.end_s for trace in traces)
    return [trace.cut(to_s=end_s) for trace in traces]


def joined_ticks(traces: list[Trace], tick_s: float) -> Counts:
    """How many nodes each trace had at the start of each tick: a row a trace, cut to the shortest.

    Raises:
        TraceError: there are none.
    """
    cut = cut_to_shortest(traces)
    starts_s: Array = np.arange(max(1, round(cut[0].end_s / tick_s)), dtype=np.float64) * tick_s
    return np.stack([trace.at(starts_s) for trace in cut])
