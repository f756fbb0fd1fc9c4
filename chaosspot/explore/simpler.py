"""Schedules that are a little simpler than one: what a shrinker tries next.

Hypothesis shrinks the choices a draw was made of; an attack takes seconds, and a schedule has parts
whose order of trying is known to pay: a fault left out says more than a number halved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot.explore.fairness import fair, supplied
from chaosspot.explore.trial import key_of
from chaosspot.nodes import ClusterSpec, Group
from chaosspot.schedule import FaultKind, Schedule, Target, Trigger
from chaosspot.toml import FileError

__all__ = ["Size", "simpler", "size"]

Size = tuple[float, ...]

_MILD = {"replace_after_s": 0.1, "lead_s": 4.0, "grace_s": 3.0, "duration_s": 0.5}


def size(plan: Schedule) -> Size:
    """How much there is to a schedule: faults, nodes, cluster, kinds and triggers, then numbers."""
    nodes = plan.cluster.nodes()
    groups = plan.cluster.group
    return (
        len(plan.fault),
        len(nodes),
        len(groups),
        sum(len(g.zones) + (g.flash_bytes is not None) for g in groups),
        *map(sum, zip(*map(_fault_size, plan.fault), strict=True)),
        plan.seed or 0,
    )


def _fault_size(fault: FaultKind) -> Size:
    on = fault.on
    waits = next(i for i, k in enumerate(_TRIGGERS) if getattr(on, k) is not None)
    rank = {"kill": 0, "terminate": 1, "notice": 1}.get(fault.kind, 2)
    target = fault.target
    chosen = 0 if target is None else 1 if target == Target(count=1) else 2
    extras = sum(getattr(fault, name, plain) != plain for name, plain in _PLAIN.items())
    amounts = sum(abs(getattr(fault, name, None) or 0.0) for name in _MILD)
    amounts += on.delay_s + on.jitter_s + (on.at_s or 0) + (on.at_step or 0) + on.nth
    toxics = len(fault.toxic) if isinstance(fault, s.Network) else 0
    count = (target.count or 0) if target else 0
    return (rank, chosen, waits, extras + toxics, amounts + count)


_TRIGGERS = ("at_step", "event", "point", "at_s")
_PLAIN: Mapping[str, Any] = {
    "keep_flash": False,
    "start_delay_s": 0.0,
    "scope": "tree",
    "kill_after_s": None,
    "withdraw_after_s": None,
    "spares": False,
}


def simpler(
    plan: Schedule, *, min_nodes: int = 1, min_alive: int = 1, keep_fair: bool = False
) -> Iterator[Schedule]:
    """Valid schedules that are simpler than this one, the boldest first.

    Args:
        min_nodes: worker nodes at the start, at least.
        min_alive: so many are left, or replacements come.
        keep_fair: what is fair stays so (:func:`.fairness.fair`).
    """
    now = size(plan)
    seen: set[str] = set()
    for candidate in _candidates(plan, min_nodes):
        kept = supplied(fair(candidate) if keep_fair else candidate, min_alive=min_alive)
        if size(kept) >= now or (key := key_of(kept)) in seen:
            continue
        seen.add(key)
        try:
            kept.check()
        except FileError:
            continue
        yield kept


def _candidates(plan: Schedule, min_nodes: int) -> Iterator[Schedule]:
    faults = plan.fault
    if len(faults) > 1:
        for fault in faults:
            yield replace(plan, fault=(fault,))
    if len(faults) > 2:
        for index in range(len(faults)):
            yield replace(plan, fault=(*faults[:index], *faults[index + 1 :]))
    count = len(plan.cluster.nodes())
    for nodes in dict.fromkeys((min_nodes, (min_nodes + count) // 2, count - 1)):
        if min_nodes <= nodes < count:
            yield from _resized(plan, nodes)
    group = plan.cluster.group[0]
    plain = replace(plan.cluster, group=(Group(count=count, zones=group.zones[:1]),))
    yield replace(plan, cluster=plain)
    if plan.seed:
        yield replace(plan, seed=0)
    for index, fault in enumerate(faults):
        for other in _milder(fault):
            yield replace(plan, fault=(*faults[:index], other, *faults[index + 1 :]))


def _resized(plan: Schedule, nodes: int) -> Iterator[Schedule]:
    """On fewer nodes, with targets that still are among them."""
    group = plan.cluster.group[0]
    cluster: ClusterSpec = replace(
        plan.cluster, group=(replace(group, count=nodes, zones=group.zones[:nodes]),)
    )
    names = {node.name for node in cluster.nodes()}

    def fitted(fault: FaultKind) -> FaultKind:
        target = fault.target
        if target is None:
            return fault
        if target.nodes is not None and not set(target.nodes) <= names:
            return replace(fault, target=Target(count=min(len(target.nodes), nodes)))
        if target.count is not None and target.count > nodes:
            return replace(fault, target=replace(target, count=nodes))
        return fault

    yield replace(plan, cluster=cluster, fault=tuple(map(fitted, plan.fault)))
    everyone = Target(count=nodes)
    yield replace(
        plan,
        cluster=cluster,
        fault=tuple(
            f if f.target is None or f.target.role != "worker" else replace(f, target=everyone)
            for f in plan.fault
        ),
    )


def _milder(fault: FaultKind) -> Iterator[FaultKind]:
    if not isinstance(fault, s.Kill) and fault.TAKES_NODES:
        back_s = fault.replace_after_s
        yield s.Kill(on=fault.on, target=fault.target, replace_after_s=back_s)
    for on in _earlier(fault.on):
        if not (isinstance(fault, s.Hold) and on.point is None):
            yield replace(fault, on=on)
    if fault.target is not None:
        yield replace(fault, target=None)
        yield replace(fault, target=Target(count=1))
        if (count := fault.target.count) is not None and count > 1:
            yield replace(fault, target=replace(fault.target, count=count - 1))
    for name, plain in _PLAIN.items():
        if getattr(fault, name, plain) != plain:
            yield replace(fault, **{name: plain})
    for name, mild in _MILD.items():
        value = getattr(fault, name, None)
        if value is not None and value > mild:
            if isinstance(fault, s.Notice) and name == "lead_s" and not _lone(fault):
                continue  # what ends it early has to go first
            yield replace(fault, **{name: mild})
    if isinstance(fault, s.Network) and len(fault.toxic) > 1 and not fault.cuts:
        for toxic in fault.toxic:
            yield replace(fault, toxic=(toxic,))


def _lone(notice: s.Notice) -> bool:
    return notice.kill_after_s is None and notice.withdraw_after_s is None


def _earlier(on: Trigger) -> Iterator[Trigger]:
    """A step instead of what else may be waited for; then fewer, and at once."""
    if on.at_step is None:
        for step in (5, 20):
            yield Trigger(at_step=step)
        if on.delay_s or on.jitter_s:
            yield replace(on, delay_s=0.0, jitter_s=0.0)
        for nth in dict.fromkeys((1, on.nth // 2, on.nth - 1)):
            if 1 <= nth < on.nth:
                yield replace(on, nth=nth)
        if on.at_s:
            yield replace(on, at_s=round(on.at_s / 2, 1))
        return
    if on.delay_s or on.jitter_s:
        yield replace(on, delay_s=0.0, jitter_s=0.0)
    for step in dict.fromkeys((1, on.at_step // 2, on.at_step - 1)):
        if 1 <= step < on.at_step:
            yield replace(on, at_step=step)
