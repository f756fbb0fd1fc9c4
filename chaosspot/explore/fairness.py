"""Schedules made so that a trainer can be blamed for what it does not survive."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot.explore.places import most_taken
from chaosspot.schedule import FaultKind, Schedule, Target

__all__ = ["fair", "supplied"]

_UNBOUNDED = 1_000_000  # steps
_PATIENCE_S = 30.0  # after what hindered a recovery is over


def supplied(plan: Schedule, *, min_alive: int) -> Schedule:
    """The same, with a replacement for whatever would leave fewer than ``min_alive`` nodes.

    A job that is given no nodes to go on with cannot be blamed for not going on.
    """
    nodes = plan.cluster.nodes()
    left, made = len(nodes), []
    for fault in plan.fault:
        if _takes_node(fault) and fault.replace_after_s is None:
            role = fault.target.role if fault.target else "worker"
            taken = most_taken(fault.target, nodes)
            if role == "coordinator" or left - taken < min_alive:
                made.append(replace(fault, replace_after_s=0.5))
                continue
            left -= taken
        made.append(fault)
    return replace(plan, fault=tuple(made))


def fair(plan: Schedule) -> Schedule:
    """The same without what would keep a node from leaving in the time that its notice gives it.

    A node that stands still, cannot ask or cannot save is not to blame, nor is one that is taken
    before its deadline: other faults which take nodes get nodes of their own. Nothing comes for who
    left on a notice that came to nothing: only one node in several gets such a one. And who could
    not save or read before a loss may repeat more, and take longer.
    """
    return _owed(_timely(plan))


def _owed(plan: Schedule) -> Schedule:
    """The same, with what can be owed after a loss while state could not be kept or read."""
    hinders = [getattr(f, "duration_s", 0.0) for f in plan.fault if _hinders(f)]
    hindered = bool(hinders) and any(map(_takes_node, plan.fault))
    if hindered:
        own = replace(plan.expect, rework_steps=_UNBOUNDED, recovery_s=_PATIENCE_S + max(hinders))
        return replace(plan, expect=own)
    if plan.expect.rework_steps == _UNBOUNDED:
        return replace(plan, expect=replace(plan.expect, rework_steps=None, recovery_s=None))
    return plan


def _hinders(fault: FaultKind) -> bool:
    """Whether nodes cannot save what they should, or not in time, while this lasts."""
    store = isinstance(fault, s.Network) and fault.link == "store"
    return store or isinstance(fault, s.ObjectStore | s.DiskFull | s.SlowFlash)


def _timely(plan: Schedule) -> Schedule:
    """Without what keeps nodes from leaving in time."""
    plan = replace(plan, fault=tuple(_kept_promises(plan)))
    notices = [f for f in plan.fault if isinstance(f, s.Notice) and _takes_node(f)]
    if not notices:
        return plan
    others = [f for f in plan.fault if isinstance(f, s.Kill | s.Terminate)]
    kept = [f for f in plan.fault if f in notices or f in others or isinstance(f, s.Grow)]
    if not others:
        return replace(plan, fault=tuple(kept))
    names = [node.name for node in plan.cluster.nodes()]
    if len(names) == 1:
        return replace(plan, fault=tuple(f for f in kept if f not in others))
    own = {True: Target(nodes=(names[0],)), False: Target(nodes=(names[1],))}
    return replace(
        plan,
        fault=tuple(
            f if isinstance(f, s.Grow) else replace(f, target=own[f in notices]) for f in kept
        ),
    )


def _kept_promises(plan: Schedule) -> Iterator[FaultKind]:
    """The faults, with at most one notice that comes to nothing, of one node among several."""
    alone = len(plan.cluster.nodes()) == 1
    before = False
    for fault in plan.fault:
        if isinstance(fault, s.Notice) and not _takes_node(fault):
            if alone or before:
                kept = replace(fault, withdraw_after_s=None, spares=False, replace_after_s=0.5)
            else:
                before, kept = True, replace(fault, target=Target(count=1))
            yield kept
        else:
            yield fault


def _takes_node(fault: FaultKind) -> bool:
    """Whether a node is gone when this fault is over."""
    if isinstance(fault, s.Notice):
        return not fault.spares and fault.withdraw_after_s is None
    return isinstance(fault, s.Kill | s.Terminate)
