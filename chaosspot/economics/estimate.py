"""Savings of a job on a trace, with an interval, and what they rest on."""

from __future__ import annotations

import msgspec
import numpy as np

from chaosspot.checked import at_least_0, at_least_1
from chaosspot.economics.bootstrap import Interval, ratio_interval
from chaosspot.economics.ledger import (
    FIELD_REWORK,
    Ledger,
    Line,
    NodeClass,
    Rework,
    net_savings,
)
from chaosspot.economics.money import Amount, Rate
from chaosspot.economics.placement import Placement
from chaosspot.economics.prices import Prices
from chaosspot.economics.replay import Job, Replay, replay
from chaosspot.traces.trace import Array, Trace, TraceError

__all__ = ["OnTrace", "Start", "ledger_of", "ledger_of_placement", "mtbi_s", "on_trace"]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The same job, begun so late into the trace."""

    offset_h: float
    net_savings: float
    rework: float


class OnTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What a job saves on a trace. ``assumed``: at the field's 5 % rework, for comparison.

    ``net_savings`` and ``rework`` are with their bootstrap intervals over spells; storage and
    egress are spread over what is billed. ``mtbi_h``: hours between interruptions of the running
    job.
    """

    trace: str
    licence: str
    held: bool
    days: float
    spells: int
    events: int
    nodes_lost: int
    mean_nodes: float
    running_h: float
    waiting_h: float
    mtbi_h: float
    useful_node_h: float
    billed_node_h: float
    net_savings: Interval
    rework: Interval
    split: Rework
    ledger: Ledger
    by_class: dict[str, float]
    starts: tuple[Start, ...]
    assumed_rework: float
    assumed_net_savings: float


def mtbi_s(trace: Trace, job: Job) -> float:
    """Seconds that ``job`` runs on ``trace`` between interruptions, on average.

    Raises:
        TraceError: it never runs.
    """
    done = replay(trace, job)
    return done.running_s / done.spells


def ledger_of(
    done: Replay,
    prices: Prices,
    *,
    run_source: str,
    storage: Amount | None = None,
    egress: Amount | None = None,
) -> Ledger:
    """The bill of a replay, by node class.

    Raises:
        ValueError: nothing useful was done, or the currencies differ.
    """
    on_demand_h = float(done.on_demand_node_s.sum()) / 3600
    reserved_h = float(done.reserved_node_s.sum()) / 3600
    billed: tuple[tuple[NodeClass, Rate, float], ...] = (
        ("spot", prices.spot, max(0.0, done.billed_node_h - on_demand_h - reserved_h)),
        ("on-demand", prices.on_demand, on_demand_h),
        ("reserved", prices.reserved, reserved_h),
    )
    return Ledger(
        lines=tuple(
            Line(node_class=kind, rate=rate, billed_node_h=hours)
            for kind, rate, hours in billed
            if hours or kind == "spot"
        ),
        on_demand=prices.on_demand,
        run_node_h=done.useful_node_h,
        run_source=run_source,
        discount_source=prices.source,
        storage=storage,
        egress=egress,
    )


def on_trace(
    trace: Trace,
    job: Job,
    prices: Prices,
    rng: np.random.Generator,
    *,
    samples: int = 1000,
    starts: int = 8,
    storage: Amount | None = None,
    egress: Amount | None = None,
) -> OnTrace:
    """Replay ``job`` on the whole of ``trace``, draw its spells again, and begin later as well.

    Args:
        trace: what was there.
        job: what it is used for.
        prices: what it costs.
        rng: decides the draws.
        samples: of the bootstrap.
        starts: offsets, evenly over the first half of the trace.
        storage: charged on top, for the whole trace.
        egress: as ``storage``.

    Raises:
        TraceError: the job never runs, or nothing useful is ever done.
    """
    at_least_1(starts=starts)
    done = replay(trace, job)
    if not done.useful_node_h:
        raise TraceError(
            f"{trace.name}: no spell of {job.min_nodes} nodes outlasts a restart of "
            f"{job.costs.restart_s:g} s and an interval of {job.costs.interval_s:g} s: nothing "
            "useful is done"
        )
    extras = sum(extra.value for extra in (storage, egress) if extra)
    cost, run = _by_spell(done, prices, extras)
    paid = ratio_interval(cost, run, rng, samples=samples)
    extra = done.billed_node_s - done.useful_node_s
    ledger = ledger_of(
        done,
        prices,
        run_source=f"useful node-hours of the replay on {trace.name}, without snapshots' stalls",
        storage=storage,
        egress=egress,
    )
    return OnTrace(
        trace=trace.name,
        licence=trace.licence,
        held=trace.held,
        days=trace.days,
        spells=done.spells,
        events=done.events,
        nodes_lost=done.nodes_lost,
        mean_nodes=trace.mean_nodes,
        running_h=done.running_s / 3600,
        waiting_h=done.waiting_s / 3600,
        mtbi_h=done.running_s / done.spells / 3600,
        useful_node_h=done.useful_node_h,
        billed_node_h=done.billed_node_h,
        net_savings=msgspec.structs.replace(
            paid, value=1 - paid.value, low=1 - paid.high, high=1 - paid.low
        ),
        rework=ratio_interval(extra, done.useful_node_s, rng, samples=samples),
        split=done.rework,
        ledger=ledger,
        by_class=ledger.by_class(),
        starts=_starts(trace, job, prices, starts, extras / trace.end_s),
        assumed_rework=FIELD_REWORK,
        assumed_net_savings=net_savings(discount=prices.discount, rework=FIELD_REWORK),
    )


def ledger_of_placement(placement: Placement, *, rework: float, run_h: float = 1.0) -> Ledger:
    """The bill of a placement for ``run_h`` hours of useful work at a given rework ratio.

    Coordinators are billed too; the on-demand run has them as well.

    Raises:
        ValueError: not all nodes are placed, or ``rework`` is negative.
    """
    if not placement.placed:
        found = sum(pool.nodes for pool in placement.pool)
        raise ValueError(
            f"{found} of {placement.nodes + placement.coordinators} nodes are placed: "
            "choose where with chaosspot place"
        )
    at_least_0(rework=rework)
    return Ledger(
        lines=tuple(
            Line(
                node_class=pool.node_class,
                rate=pool.rate,
                billed_node_h=pool.nodes * run_h * (1 + rework),
            )
            for pool in placement.pool
            if pool.nodes
        ),
        on_demand=placement.on_demand,
        run_node_h=(placement.nodes + placement.coordinators) * run_h,
        run_source=f"{run_h:g} h of useful work on every node, as stated",
        discount_source=placement.price_source,
    )


def _by_spell(done: Replay, prices: Prices, extras: float) -> tuple[Array, Array]:
    """What each spell costs, and what its useful work would cost on demand."""
    spot = done.billed_node_s - done.on_demand_node_s - done.reserved_node_s
    cost = (
        spot * prices.spot.per_node_h
        + done.on_demand_node_s * prices.on_demand.per_node_h
        + done.reserved_node_s * prices.reserved.per_node_h
    )
    shared = extras * done.billed_node_s / done.billed_node_s.sum()
    return cost / 3600 + shared, done.useful_node_s / 3600 * prices.on_demand.per_node_h


def _starts(
    trace: Trace, job: Job, prices: Prices, number: int, extras_per_s: float
) -> tuple[Start, ...]:
    found = []
    for turn in range(number):
        offset_s = trace.end_s / 2 * turn / number
        try:
            done = replay(trace.cut(from_s=offset_s), job)
        except TraceError:  # too late for this job
            continue
        cost, run = _by_spell(done, prices, extras_per_s * (trace.end_s - offset_s))
        if run.sum():
            found.append(
                Start(
                    offset_h=offset_s / 3600,
                    net_savings=1 - float(cost.sum() / run.sum()),
                    rework=done.rework_ratio,
                )
            )
    return tuple(found)
