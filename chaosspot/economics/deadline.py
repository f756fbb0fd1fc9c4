"""A job that must be done in time: how much of it spot nodes can do before on-demand ones have to.

The greedy policy of "Can't Be Late" (Wu et al., NSDI 2024): run on spot whenever there is any, wait
while there is none, and go on on-demand nodes to the end once waiting longer would be too late.
"""

from __future__ import annotations

import msgspec

from chaosspot.checked import above_0, at_least_0, share
from chaosspot.traces.trace import Flags

__all__ = ["Spent", "greedy", "greedy_fluid"]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, in seconds. ``spot_s`` and ``on_demand_s`` are of work that was done;
    ``changeover_s`` is billed as well, ``waiting_s`` is not. ``late_s``: after the deadline.
    """

    spot_s: float
    on_demand_s: float
    waiting_s: float
    changeover_s: float
    late_s: float


def greedy(
    available: Flags, *, tick_s: float, work_s: float, deadline_s: float, changeover_s: float
) -> Spent:
    """Follow the policy over a series of ticks; what comes after it is like its last tick.

    The safety net: while there is no spot, and the time left is below the work left and two
    changeovers, on-demand nodes take over, to the end.

    Args:
        available: whether spot nodes are there in each tick; at least one tick.
        tick_s: how long one is.
        work_s: what is to be done.
        deadline_s: from the start.
        changeover_s: what each start on nodes of either sort costs before work goes on.

    Raises:
        ValueError: a time is negative, there are no ticks, or there is less time than work.
    """
    above_0(tick_s=tick_s, work_s=work_s, ticks=len(available))
    at_least_0(changeover_s=changeover_s)
    _check_room(work_s, deadline_s)
    done = {"spot": 0.0, "on-demand": 0.0}
    left_s, starting_s, passed_s, waiting_s, started_s = work_s, 0.0, 0.0, 0.0, 0.0
    on = ""
    tick = 0
    while left_s > 1e-9:
        there = bool(available[min(tick, len(available) - 1)])
        # a tick that is waited through is over before the next look
        pressed = deadline_s - passed_s - tick_s < left_s + 2 * changeover_s
        if on != "on-demand":
            now_on = "spot" if there else "on-demand" if pressed else ""
            if now_on and now_on != on:
                starting_s = changeover_s
            on = now_on
        if on:
            start_s = min(starting_s, tick_s)
            work_now_s = min(left_s, tick_s - start_s)
            starting_s -= start_s
            started_s += start_s
            done[on] += work_now_s
            left_s -= work_now_s
            passed_s += start_s + work_now_s
        else:
            waiting_s += tick_s
            passed_s += tick_s
        tick += 1
    return Spent(
        spot_s=done["spot"],
        on_demand_s=done["on-demand"],
        waiting_s=waiting_s,
        changeover_s=started_s,
        late_s=max(0.0, passed_s - deadline_s),
    )


def greedy_fluid(*, spot_share: float, work_s: float, deadline_s: float) -> Spent:
    """The same where spot is there a share of every moment, and changing over costs nothing.

    Waiting ends at t' = (R - C) / (1 - s); until then s t' is done on spot, after it R - t' on
    demand.

    Raises:
        ValueError: ``spot_share`` is outside [0, 1], or there is less time than work.
    """
    share(spot_share=spot_share)
    _check_room(work_s, deadline_s)
    if spot_share * deadline_s >= work_s:  # spot alone is enough
        passed_s = work_s / spot_share
        spot_s = work_s
    else:
        passed_s = (deadline_s - work_s) / (1 - spot_share)
        spot_s = spot_share * passed_s
    return Spent(
        spot_s=spot_s,
        on_demand_s=work_s - spot_s,
        waiting_s=passed_s - spot_s,
        changeover_s=0.0,
        late_s=0.0,
    )


def _check_room(work_s: float, deadline_s: float) -> None:
    if not 0 < work_s <= deadline_s:
        raise ValueError(f"work_s = {work_s!r}: above 0 and at most deadline_s = {deadline_s!r}")
