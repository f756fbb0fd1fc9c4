"""All that ``chaosspot savings`` finds, as one value that is printed, drawn or written as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from chaosspot.economics import ledger as formula
from chaosspot.economics.bootstrap import FEW_SPELLS
from chaosspot.economics.estimate import OnTrace
from chaosspot.economics.interval import Costs
from chaosspot.economics.ledger import FIELD_DISCOUNT, FIELD_REWORK, Ledger
from chaosspot.economics.measured import Measured
from chaosspot.words import count

__all__ = ["AtInterval", "Savings", "rows"]


class AtInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Net savings where interruptions are ``mtbi_h`` hours apart and independent.

    ``best_interval_s``: the snapshot interval with the least expected time, and ``best``: what it
    would save; ``field_mtbi_h``: how far apart interruptions have to be for the field's 5 %
    rework, infinite where stalls alone cost more. None where no snapshot interval decides what is
    lost.
    """

    mtbi_h: float
    rework: float
    net_savings: float
    best_interval_s: float
    best: float | None
    field_mtbi_h: float | None


class Savings(msgspec.Struct, frozen=True, kw_only=True):
    """``net_savings`` and ``rework`` are the headline; ``basis`` says what they rest on."""

    discount: float
    discount_source: str
    break_even_rework: float
    rework: float | None
    net_savings: float | None
    basis: str
    field_net_savings: float = formula.net_savings(discount=FIELD_DISCOUNT, rework=FIELD_REWORK)
    measured: Measured | None = None
    measured_rework: float | None = None
    costs: Costs | None = None
    costs_source: str = ""
    at_interval: AtInterval | None = None
    on_trace: OnTrace | None = None
    worst_restart: float | None = None
    placement: Ledger | None = None

    @property
    def ledger(self) -> Ledger | None:
        """The bill, where there is one."""
        return self.on_trace.ledger if self.on_trace else self.placement


def rows(found: Savings) -> Iterator[tuple[str, str]]:
    """What people are shown: a label and what was found, the headline last."""
    yield "discount", f"{found.discount:.2%} ({found.discount_source})"
    yield "break-even rework", f"{found.break_even_rework:.1%}"
    yield (
        "assumed by the field",
        f"{FIELD_REWORK:.0%} rework: net savings "
        f"{formula.net_savings(discount=found.discount, rework=FIELD_REWORK):.2%} at this discount "
        f"({found.field_net_savings:.2%} at {FIELD_DISCOUNT:.0%})",
    )
    if found.measured:
        yield from _measured(found.measured)
    if found.costs:
        yield from _costs(found.costs, found.costs_source)
    if found.at_interval:
        yield from _at_interval(found.at_interval)
    if found.on_trace:
        yield from _on_trace(found.on_trace)
    if found.worst_restart is not None:
        yield "with the worst restart seen", f"net savings {found.worst_restart:.2%}"
    if ledger := found.ledger:
        yield from _ledger(ledger)
    if found.rework is not None:
        yield "rework", f"{found.rework:.2%}"
    if found.net_savings is None:
        yield "net savings", f"not known: {found.basis}"
    else:
        yield "net savings", f"{found.net_savings:.2%}{_bounds(found)} ({found.basis})"


def _bounds(found: Savings) -> str:
    if not found.on_trace:
        return ""
    interval = found.on_trace.net_savings
    few = f", only {interval.spells} spells" if interval.spells < FEW_SPELLS else ""
    return f", {interval.level:.0%} {interval.low:.2%} to {interval.high:.2%}{few}"


def _measured(seen: Measured) -> Iterator[tuple[str, str]]:
    left_out = f", {seen.left_out} that did not pass left out" if seen.left_out else ""
    size = f"{seen.state_bytes / 1e6:.1f} MB of state" if seen.state_bytes else "no state seen"
    yield (
        "measured",
        f"{seen.trainer}, {count(seen.runs, 'attack')} with "
        f"{count(seen.events, 'interruption')}{left_out}: "
        f"{seen.nodes} nodes, {size}, a step of {seen.step_s:.3g} s",
    )
    yield (
        "  an interruption",
        f"restart {seen.restart_s:.3g} s (worst {seen.worst_restart_s:.3g} s), "
        f"{seen.lost_steps:.3g} steps lost, a replacement took part after {seen.join_s:.3g} s",
    )
    yield "  a snapshot", f"stall {seen.stall_s * 1000:.3g} ms, {seen.stalls_seen} seen"
    if seen.flushed is not None:
        yield (
            "  notices",
            f"{seen.notices_kept} of {seen.notices} kept, gone {seen.flush_s:.3g} s after reading",
        )
    if seen.rework is not None:
        yield (
            "  in the attacks themselves",
            f"rework {seen.rework:.1%} against T_run of {seen.run_source}; attacks interrupt far "
            "more often than clouds do",
        )


def _costs(costs: Costs, source: str) -> Iterator[tuple[str, str]]:
    lost = "all since the last snapshot"
    if costs.lost_s is not None:
        lost = f"{costs.lost_s:.3g} s while peers hold the state"
    flushed = f", {costs.flushed:.0%} saved on notice" if costs.flushed else ""
    yield (
        "costs",
        f"snapshot every {costs.interval_s:.4g} s, stall {costs.stall_s:.3g} s, restart "
        f"{costs.restart_s:.3g} s, joining {costs.join_s:.3g} s, lost {lost}{flushed} ({source})",
    )


def _at_interval(found: AtInterval) -> Iterator[tuple[str, str]]:
    best = "" if found.best is None else f"; best interval {found.best_interval_s:.4g} s"
    saves = "" if found.best is None else f" saves {found.best:.2%}"
    yield (
        f"interruptions every {found.mtbi_h:.3g} h, independent",
        f"rework {found.rework:.2%}, net savings {found.net_savings:.2%}{best}{saves}",
    )
    if found.field_mtbi_h is not None:
        apart = f"takes interruptions {found.field_mtbi_h:.3g} h apart, in first order"
        stalls = "is out of reach: the stalls of snapshots alone cost more"
        yield f"  {FIELD_REWORK:.0%} rework", stalls if math.isinf(found.field_mtbi_h) else apart


def _on_trace(found: OnTrace) -> Iterator[tuple[str, str]]:
    kind = "held nodes" if found.held else "launch probes, not held nodes"
    yield (
        "trace",
        f"{found.trace}: {found.days:.2f} days, {found.mean_nodes:.1f} nodes on average, {kind}, "
        f"licence {found.licence}",
    )
    yield (
        "  interruptions",
        f"{found.events} events that took {found.nodes_lost} nodes; {found.spells} spells, "
        f"{found.mtbi_h:.3g} h each on average",
    )
    yield "  wall clock", f"running {found.running_h:.4g} h, waiting {found.waiting_h:.4g} h"
    useful = found.useful_node_h
    split = {
        "lost": found.split.lost_node_s,
        "restart": found.split.restart_node_s,
        "stall": found.split.stall_node_s,
        "idle": found.split.idle_node_s,
    }
    parts = ", ".join(f"{cause} {node_s / 3600 / useful:.2%}" for cause, node_s in split.items())
    rework = found.rework
    yield (
        "  rework",
        f"{rework.value:.2%}, {rework.level:.0%} {rework.low:.2%} to {rework.high:.2%}: {parts}",
    )
    if found.starts:
        saved = sorted(start.net_savings for start in found.starts)
        yield (
            f"  begun at {len(saved)} times",
            f"net savings {saved[0]:.2%} to {saved[-1]:.2%}, median {saved[len(saved) // 2]:.2%}",
        )


def _ledger(ledger: Ledger) -> Iterator[tuple[str, str]]:
    parts = ", ".join(f"{name} {cost:.4g}" for name, cost in ledger.by_class().items())
    yield (
        "bill",
        f"{ledger.cost:.4g} {ledger.currency} ({parts}) against {ledger.on_demand_cost:.4g} on "
        f"demand: net savings {ledger.net_savings:.2%}",
    )
    yield "T_run", f"{ledger.run_node_h:.4g} node-hours: {ledger.run_source}"
