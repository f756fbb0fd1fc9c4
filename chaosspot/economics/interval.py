"""What snapshots and interruptions cost a gang when interruptions are independent of each other.

The formulas are the trainer's own (:mod:`chaosspot.trainer.cadence`). Real interruptions come in
bursts; :mod:`chaosspot.economics.replay` says what they do.
"""

from __future__ import annotations

import math

import msgspec

from chaosspot.checked import above_0, at_least_0, share
from chaosspot.trainer import cadence

__all__ = ["Costs", "best_interval_s", "least_mtbi_s", "rework_ratio"]


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What snapshots and interruptions cost one job, in seconds.

    ``stall_s``: training stops this long for a snapshot. ``restart_s``: from an interruption to
    the next useful work. ``interval_s``: useful work between snapshots. ``lost_s``: work lost with
    an interruption, where it is known better than "all since the last snapshot", because peers
    hold the state. ``join_s``: a node that comes while the job runs is billed this long before it
    takes part. ``flush_s``: what saving everything on a notice takes, and ``flushed``: how
    often that succeeds, of all interruptions.

    Raises:
        ValueError: a time is negative, ``interval_s`` is not positive, or ``flushed`` no share.
    """

    interval_s: float
    stall_s: float
    restart_s: float
    lost_s: float | None = None
    join_s: float = 0.0
    flush_s: float = 0.0
    flushed: float = 0.0

    def __post_init__(self) -> None:
        above_0(interval_s=self.interval_s)
        at_least_0(stall_s=self.stall_s, restart_s=self.restart_s, flush_s=self.flush_s)
        at_least_0(join_s=self.join_s)
        share(flushed=self.flushed)
        if self.lost_s is not None:
            at_least_0(lost_s=self.lost_s)


def best_interval_s(*, stall_s: float, mtbi_s: float) -> float:
    """The interval with the least expected time, in seconds (see :func:`cadence.optimum_s`)."""
    return cadence.optimum_s(stall_s=stall_s, mtbi_s=mtbi_s)


def rework_ratio(costs: Costs, *, mtbi_s: float) -> float:
    """Expected time billed beyond the useful, a share of the useful.

    Exact (:func:`cadence.time_factor`) where all since the last snapshot is lost. Else renewal
    theory's first order: stalls a share d/t of useful time, and each interruption costs
    q f + (1 - q) lost + R of the time between two; infinite where it costs more than that.

    Raises:
        ValueError: ``mtbi_s`` is not positive.
    """
    if costs.lost_s is None and not costs.flushed:
        return (
            cadence.time_factor(
                interval_s=costs.interval_s,
                stall_s=costs.stall_s,
                restart_s=costs.restart_s,
                mtbi_s=mtbi_s,
            )
            - 1
        )
    segment_s = costs.interval_s + costs.stall_s
    lost_s = costs.lost_s
    if lost_s is None:
        lost_s = cadence.expected_lost_s(segment_s=segment_s, mtbi_s=mtbi_s)
    each_s = costs.flushed * costs.flush_s + (1 - costs.flushed) * lost_s + costs.restart_s
    left = 1 - each_s / mtbi_s
    return segment_s / (costs.interval_s * left) - 1 if left > 0 else math.inf


def least_mtbi_s(costs: Costs, *, rework: float) -> float:
    """How far apart interruptions have to come, on average, to keep ``rework``: in seconds.

    First order: (t/2 + R) / (r - d/t); infinite where the stalls alone cost more.

    Raises:
        ValueError: ``rework`` is not positive.
    """
    above_0(rework=rework)
    left = rework - costs.stall_s / costs.interval_s
    return (costs.interval_s / 2 + costs.restart_s) / left if left > 0 else math.inf
