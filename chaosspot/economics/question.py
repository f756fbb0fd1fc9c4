"""What is asked about a job's savings, and the one way to answer it."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
import numpy as np

from chaosspot.checked import above_0, at_least_0
from chaosspot.economics import scaling
from chaosspot.economics.estimate import OnTrace, ledger_of_placement, mtbi_s, on_trace
from chaosspot.economics.interval import Costs, best_interval_s, least_mtbi_s, rework_ratio
from chaosspot.economics.ledger import FIELD_REWORK, break_even_rework, net_savings
from chaosspot.economics.measured import Measured
from chaosspot.economics.money import Amount
from chaosspot.economics.placement import Placement
from chaosspot.economics.prices import Prices
from chaosspot.economics.replay import Job
from chaosspot.economics.risks import mtbi_s as mtbi_of_risk
from chaosspot.economics.risks import risks
from chaosspot.economics.savings import AtInterval, Savings
from chaosspot.economics.scaling import JobSize
from chaosspot.traces.trace import Trace, TraceError

__all__ = ["Question", "answer"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """``prices`` and one basis or several: an assumed ``rework``, attacks (``measured``), a
    ``trace``, a ``placement``, or a mean time between interruptions (``mtbi_h``).

    Costs that are given (``stall_s``, ``restart_s``, ``lost_s``, ``join_s``, ``interval_s``)
    replace measured ones. ``size`` describes a larger job than the attacked one. ``noticed``: the
    share of interruptions that a notice announces. The rest is as in
    :class:`~chaosspot.economics.replay.Job` and :func:`~chaosspot.economics.estimate.on_trace`.
    """

    prices: Prices
    rework: float | None = None
    measured: Measured | None = None
    size: JobSize | None = None
    trace: Trace | None = None
    placement: Placement | None = None
    mtbi_h: float | None = None
    stall_s: float | None = None
    restart_s: float | None = None
    lost_s: float | None = None
    join_s: float | None = None
    interval_s: float | Literal["auto"] | None = None
    noticed: float = 0.0
    nodes: int | None = None
    min_nodes: int | None = None
    reserved_nodes: int = 0
    fallback: bool = False
    bill_waiting: bool = False
    survives_nodes: int | None = None
    storage: Amount | None = None
    egress: Amount | None = None
    starts: int = 8
    samples: int = 1000


def answer(asked: Question, rng: np.random.Generator) -> Savings:
    """What the job saves. The headline rests on the strongest basis there is: a trace, else a
    placement, else ``mtbi_h``, else the attacks themselves, else the assumed rework.

    Raises:
        ValueError: a value cannot be, two contradict each other, or something must be said.
    """
    _check(asked)
    found = Savings(
        discount=asked.prices.discount,
        discount_source=asked.prices.source,
        rework=asked.rework,
        net_savings=None,
        basis="rework as assumed",
        break_even_rework=break_even_rework(discount=asked.prices.discount),
        measured=asked.measured,
        measured_rework=asked.measured.rework if asked.measured else None,
    )
    if asked.rework is not None:
        saved = net_savings(discount=asked.prices.discount, rework=asked.rework)
        found = _with(found, net_savings=saved)
    elif asked.measured:
        found = _in_attacks(found, asked.measured)
    if not _has_costs(asked):
        return _on_placement(asked, found, None)
    costs, source = _costs(asked)
    if asked.survives_nodes is not None and costs.lost_s is None:
        raise ValueError(
            f"survives_nodes = {asked.survives_nodes}: of peers that hold the state, but nothing "
            "says what is lost while they do"
        )
    found = _with(found, costs=costs, costs_source=source)
    if asked.mtbi_h is not None:
        found = _at_interval(asked, found, costs, asked.mtbi_h * 3600)
    if asked.placement and asked.rework is None:
        found = _at_interval(asked, found, costs, _mtbi_of(asked.placement))
    found = _on_placement(asked, found, found.at_interval)
    return _on_trace(asked, found, costs, rng)


def _in_attacks(found: Savings, seen: Measured) -> Savings:
    if seen.rework is None:
        return _with(found, basis="the attacks have no twins, so T_run is not known")
    if seen.rework <= 0:  # few node-seconds, on a machine that its nodes share
        return _with(found, basis="the attacks took no longer than their twins: too short to tell")
    return _with(
        found,
        rework=seen.rework,
        net_savings=net_savings(discount=found.discount, rework=seen.rework),
        basis=f"the attacks themselves; T_run: {seen.run_source}",
    )


def _with(found: Savings, **changes: Any) -> Savings:
    return msgspec.structs.replace(found, **changes)


def _has_costs(asked: Question) -> bool:
    """Whether anything needs to know what snapshots and interruptions cost."""
    if asked.trace or asked.mtbi_h is not None:
        return True
    return asked.placement is not None and asked.rework is None


def _check(asked: Question) -> None:
    bases = (asked.rework, asked.measured, asked.trace, asked.placement, asked.mtbi_h)
    if all(basis is None for basis in bases):
        raise ValueError("nothing to go by: say --rework, --runs, --trace, --placement or --mtbi-h")
    if asked.rework is not None and (asked.trace or asked.measured or asked.mtbi_h is not None):
        raise ValueError(
            f"rework = {asked.rework} is assumed, and runs, a trace or --mtbi-h would tell: "
            "say one or the other"
        )
    if asked.mtbi_h is not None:
        above_0(mtbi_h=asked.mtbi_h)
        if asked.placement:
            raise ValueError(
                f"mtbi_h = {asked.mtbi_h}: a placement says by itself how often it loses nodes"
            )
    if (extra := asked.storage or asked.egress) and not asked.trace:
        raise ValueError(f"{extra.value:g} {extra.currency} of storage or egress: of which trace?")
    if asked.rework is not None:
        at_least_0(rework=asked.rework)
    if asked.size and not asked.measured:
        raise ValueError("a larger job is described, but no --runs to work out its costs from")


def _costs(asked: Question) -> tuple[Costs, str]:
    """The costs, and where they come from."""
    given = {
        name: value
        for name in ("stall_s", "restart_s", "lost_s", "join_s")
        if (value := getattr(asked, name)) is not None
    }
    interval_s = None if asked.interval_s == "auto" else asked.interval_s
    if asked.measured:
        first = interval_s or (asked.size or asked.measured).step_s  # auto replaces it below
        costs = scaling.costs_of(
            asked.measured,
            size=asked.size,
            interval_s=first if asked.interval_s == "auto" else interval_s,
            noticed=asked.noticed,
        )
        costs = msgspec.structs.replace(costs, **given)
        source = (
            f"as measured with {asked.measured.nodes} nodes, for the attacked "
            f"{asked.measured.trainer} alone: nothing is extrapolated"
        )
        if asked.size:
            source = (
                f"measured, for {asked.size.state_bytes / 1e9:.4g} GB of state a node at "
                f"{asked.size.bandwidth_bytes_per_s / 1e9:.3g} GB/s and a step of "
                f"{asked.size.step_s:g} s as stated"
            )
        if given:
            source += f"; {', '.join(given)} as given"
    else:
        lacking = [name for name in ("stall_s", "restart_s") if name not in given]
        lacking += ["interval_s"] if asked.interval_s is None else []
        if lacking:
            raise ValueError(
                f"{', '.join(lacking)} not known: say them, or the --runs to measure in"
            )
        costs = Costs(interval_s=1.0 if interval_s is None else interval_s, **given)
        source = "as given"
    if asked.interval_s == "auto":
        often_s = _mtbi(asked, costs)
        best_s = best_interval_s(stall_s=costs.stall_s, mtbi_s=often_s)
        step_s = (asked.size or asked.measured).step_s if asked.measured else 0.0
        costs = msgspec.structs.replace(costs, interval_s=max(best_s, step_s) or costs.interval_s)
        source += (
            f"; the best interval if each interruption, every {often_s / 3600:.3g} h, fell back "
            "on a snapshot"
        )
    return costs, source


def _mtbi(asked: Question, costs: Costs) -> float:
    if asked.trace:
        return mtbi_s(asked.trace, _job(asked, asked.trace, costs))
    if asked.mtbi_h is not None:
        return asked.mtbi_h * 3600
    return _mtbi_of(asked.placement) if asked.placement else math.inf


def _mtbi_of(placement: Placement) -> float:
    """By common shocks: the model that knows of zones and families."""
    return mtbi_of_risk(risks(placement, at_least=1)[-1], tick_s=placement.losses.tick_s)


def _at_interval(asked: Question, found: Savings, costs: Costs, often_s: float) -> Savings:
    rework = rework_ratio(costs, mtbi_s=often_s)
    if math.isinf(rework):
        raise ValueError(
            f"interruptions every {often_s / 3600:.3g} h: an interval of {costs.interval_s:.4g} s "
            "is never finished, so nothing useful is done"
        )
    best_s = best_interval_s(stall_s=costs.stall_s, mtbi_s=often_s)
    best, least_s = None, None
    if costs.lost_s is None and not costs.flushed:
        least_s = least_mtbi_s(costs, rework=FIELD_REWORK)
    if costs.lost_s is None and 0 < best_s < math.inf:
        better = msgspec.structs.replace(costs, interval_s=best_s)
        best = net_savings(
            discount=asked.prices.discount, rework=rework_ratio(better, mtbi_s=often_s)
        )
    at = AtInterval(
        mtbi_h=often_s / 3600,
        rework=rework,
        net_savings=net_savings(discount=asked.prices.discount, rework=rework),
        best_interval_s=best_s,
        best=best,
        field_mtbi_h=None if least_s is None else least_s / 3600,
    )
    return _with(
        found,
        at_interval=at,
        rework=at.rework,
        net_savings=at.net_savings,
        basis=f"independent interruptions every {at.mtbi_h:.3g} h; T_run: useful time alone",
    )


def _on_placement(asked: Question, found: Savings, at: AtInterval | None) -> Savings:
    if asked.placement is None:
        return found
    rework = at.rework if at else (asked.rework or 0.0)
    ledger = ledger_of_placement(asked.placement, rework=rework)
    return _with(
        found,
        placement=ledger,
        rework=rework,
        net_savings=ledger.net_savings,
        basis="the placement's bill; " + (found.basis if at else "rework as assumed"),
    )


def _job(asked: Question, trace: Trace, costs: Costs) -> Job:
    if not trace.most_nodes:
        raise TraceError(f"{trace.name}: no node was ever there")
    nodes = asked.nodes or trace.most_nodes + asked.reserved_nodes
    least = asked.min_nodes or (asked.measured.min_nodes if asked.measured else nodes)
    return Job(
        nodes=nodes,
        min_nodes=least,
        costs=costs,
        reserved_nodes=asked.reserved_nodes,
        fallback=asked.fallback,
        bill_waiting=asked.bill_waiting,
        survives_nodes=asked.survives_nodes,
    )


def _on_trace(asked: Question, found: Savings, costs: Costs, rng: np.random.Generator) -> Savings:
    if asked.trace is None:
        return found
    job = _job(asked, asked.trace, costs)
    result = _replayed(asked, asked.trace, job, rng)
    worst = None
    if asked.measured and asked.restart_s is None:
        slower = scaling.costs_of(
            asked.measured,
            size=asked.size,
            interval_s=costs.interval_s,
            restart_s=asked.measured.worst_restart_s,
        ).restart_s
        worse = msgspec.structs.replace(costs, restart_s=slower)
        slow = msgspec.structs.replace(job, costs=worse)
        worst = on_trace(asked.trace, slow, asked.prices, rng, samples=1, starts=1)
    return _with(
        found,
        on_trace=result,
        rework=result.rework.value,
        net_savings=result.ledger.net_savings,
        worst_restart=worst.net_savings.value if worst else None,
        basis=f"the trace, {job.min_nodes} to {job.nodes} nodes"
        if job.min_nodes < job.nodes
        else f"the trace, a gang of {job.nodes} nodes",
    )


def _replayed(asked: Question, trace: Trace, job: Job, rng: np.random.Generator) -> OnTrace:
    return on_trace(
        trace,
        job,
        asked.prices,
        rng,
        samples=asked.samples,
        starts=asked.starts,
        storage=asked.storage,
        egress=asked.egress,
    )
