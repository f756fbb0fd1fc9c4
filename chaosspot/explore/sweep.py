"""What is tried before anything is drawn at random: every sort of fault, a loss at every moment.

Each schedule is one that :func:`.strategies.schedules` may draw, of few faults and mild numbers.
The order is what is likeliest to pay: one loss at each moment that was seen, two losses, what the
object store may do, also with a loss, one of each other fault, a loss at what a first fault brought
about, a loss while something else is wrong, other ways to lose a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot.explore import misbehaviours
from chaosspot.explore.fairness import fair, supplied
from chaosspot.explore.ground import Ground
from chaosspot.explore.learned import Learned
from chaosspot.explore.makers import makeable
from chaosspot.explore.trial import key_of
from chaosspot.nodes import ClusterSpec, Group
from chaosspot.schedule import FaultKind, Schedule, Target, Toxic, Trigger
from chaosspot.store_misbehaviour import BitFlip, Truncated

__all__ = ["sweep"]

_SEEDS = 4  # as many choices as are drawn
_STEPS = 40  # of an undisturbed run of which nothing is known
_ALONE_S = 3.0
_WITH_LOSS_S = 5.0  # long enough for a node to come back meanwhile
_UNTIL_READ_S = 15.0  # also on a busy machine, on which a start takes seconds
_UNDER_WAY_S = 0.7  # from the beginning of a fault to the loss while it lasts
_AT_ONCE = ("commit", "begin")  # events that a step tells better
_EVERYONE = Target()


def sweep(ground: Ground, known: Learned, *, seed: int = 0) -> Iterator[Schedule]:
    """Schedules on this ground, the likeliest to pay first, none twice.

    The seed decides which nodes are hit.
    """
    ground = replace(ground, kinds=tuple(k for k in ground.kinds if k not in known.useless))
    clusters = _clusters(ground)
    seen: set[str] = set()
    for cluster, faults in _looks(ground, known, clusters):
        if not all(f.kind in makeable(ground, cluster) and ground.allows(f) for f in faults):
            continue
        plan = Schedule(seed=seed % _SEEDS, cluster=cluster, fault=faults)
        plan = supplied(fair(plan) if ground.fair else plan, min_alive=ground.min_alive)
        if plan.fault and (key := key_of(plan)) not in seen:
            seen.add(key)
            yield plan


def _clusters(ground: Ground) -> tuple[ClusterSpec, ...]:
    """One of three nodes if that can be, and what else there is for faults that need it."""
    if not ground.clusters:
        count = max(ground.min_nodes, min(ground.max_nodes, 3))
        group = Group(count=count, zones=("a", "b")[:count], flash_bytes=None)
        store = ground.store or ("s3" if "object-store" in ground.kinds else "directory")
        plain = ClusterSpec(cloud=ground.cloud or "aws", store=store, group=(group,))
        if ground.flash_bytes is None:
            return (plain,)
        limited = replace(plain, group=(replace(group, flash_bytes=ground.flash_bytes),))
        return (plain, limited)
    return tuple(sorted(ground.clusters, key=lambda c: abs(len(c.nodes()) - 3)))


def _looks(
    ground: Ground, known: Learned, clusters: tuple[ClusterSpec, ...]
) -> Iterator[tuple[ClusterSpec, tuple[FaultKind, ...]]]:
    usual = clusters[0]
    several = len(usual.nodes()) > 1
    moments = list(_moments(ground, known))
    middle = moments[0]

    def losses(on: Trigger) -> Iterator[FaultKind]:
        yield s.Kill(on=on, replace_after_s=0.1)
        if several:
            yield s.Kill(on=on, target=_EVERYONE, replace_after_s=0.1)

    def with_losses(faults: Iterable[FaultKind]) -> Iterator[tuple[FaultKind, ...]]:
        for fault in faults:
            if not _is_of_reads(fault):
                yield (fault,)
            lasts_s = _UNTIL_READ_S if _is_of_reads(fault) else _WITH_LOSS_S
            longer = replace(fault, duration_s=lasts_s) if _lasts(fault) else fault
            yield from ((longer, loss) for loss in losses(replace(middle, delay_s=_UNDER_WAY_S)))

    yield usual, (s.Kill(on=middle, replace_after_s=0.1),)
    yield usual, (_notice(middle),)
    yield usual, (s.Terminate(on=middle, grace_s=4.0, replace_after_s=0.1),)
    rare = [on for on in moments[1:] if not _each_step(known, on)]
    for on in (middle, *rare):
        for loss in losses(on):
            yield usual, (loss,)
    if several:
        later = Trigger(at_step=_step(known) + _STEPS)
        for on in (middle, *rare):
            first = s.Kill(on=on, replace_after_s=0.1)
            yield usual, (first, s.Kill(on=later, target=_EVERYONE, replace_after_s=0.1))
    for faults in with_losses(_of_store(known, usual, middle)):
        yield usual, faults
    others = list(_others(ground, known, usual, middle))
    for fault in others:
        cluster = next((c for c in clusters if fault.kind in makeable(ground, c)), usual)
        yield cluster, (fault,)
    for on in moments:
        for loss in losses(on):
            yield usual, (loss,)
    for plan, on in known.follows:
        for loss in losses(on):
            yield plan.cluster, (*plan.fault, loss)
    for faults in with_losses(others):
        cluster = next((c for c in clusters if faults[0].kind in makeable(ground, c)), usual)
        yield cluster, faults
    for fault in _variants(ground, middle):
        yield usual, (fault,)
    for on in moments[1:]:
        yield usual, (_notice(on),)
        yield usual, (s.Terminate(on=on, grace_s=4.0, replace_after_s=0.1),)


def _moments(ground: Ground, known: Learned) -> Iterator[Trigger]:
    """The middle of an undisturbed run, and of whatever happens in one: the rarest first."""
    yield Trigger(at_step=_step(known))
    points = known.calm_points if known.steps else dict.fromkeys(ground.points, 1)
    events = known.calm_events if known.steps else dict.fromkeys(ground.events, 1)
    for name, count in sorted(points.items(), key=lambda item: (item[1], item[0])):
        yield Trigger(point=name, nth=count // 2 + 1)
    for name, count in sorted(events.items(), key=lambda item: (item[1], item[0])):
        if name not in _AT_ONCE and name != "exit":
            yield Trigger(event=name, nth=count // 2 + 1)


def _step(known: Learned) -> int:
    return max(2, (known.steps or _STEPS) // 2)


def _notice(on: Trigger, **more: Any) -> FaultKind:
    return s.Notice(on=on, **{"lead_s": 4.0, "shutdown_s": 0.5, "replace_after_s": 0.1} | more)


def _variants(ground: Ground, on: Trigger) -> Iterator[FaultKind]:
    """Other ways to lose a node, and notices that come to nothing."""
    kill = s.Kill(on=on, replace_after_s=0.1)
    if ground.coordinator:
        yield replace(kill, target=Target(role="coordinator"))
    yield replace(kill, replace_after_s=None)
    yield replace(kill, start_delay_s=1.0)
    yield replace(kill, keep_flash=True)
    yield s.Terminate(on=on, grace_s=4.0, scope="main", replace_after_s=0.1)
    yield _notice(on, replace_after_s=None)
    yield _notice(on, lead_s=10.0)
    yield _notice(on, lead_s=10.0, kill_after_s=5.0)
    yield _notice(on, withdraw_after_s=2.0, replace_after_s=None)
    yield _notice(on, spares=True, replace_after_s=None)


def _each_step(known: Learned, on: Trigger) -> bool:
    """Whether this comes about as often as steps do: a step stands for it."""
    name = on.point or on.event
    count = known.calm_points.get(name or "", 0) + known.calm_events.get(name or "", 0)
    return name is not None and 2 * count >= max(1, known.steps)


def _lasts(fault: FaultKind) -> bool:
    return hasattr(fault, "duration_s")


def _is_of_reads(fault: FaultKind) -> bool:
    """Whether it shows only when state is read: after a loss."""
    return isinstance(fault, s.ObjectStore) and isinstance(fault.how, BitFlip | Truncated)


def _of_store(known: Learned, cluster: ClusterSpec, on: Trigger) -> Iterator[FaultKind]:
    """One of each misbehaviour of the object store."""
    nodes = [node.name for node in cluster.nodes()]
    for how in misbehaviours.plain_object_store(known.keys, nodes):
        yield s.ObjectStore(on=on, how=how, duration_s=_ALONE_S)


def _others(
    ground: Ground, known: Learned, cluster: ClusterSpec, on: Trigger
) -> Iterator[FaultKind]:
    """One of each other sort of fault that only hinders nodes, or adds some."""
    lasts_s = _ALONE_S
    for link in ground.links:
        cut = tuple(Toxic(type="timeout", stream=way) for way in ("upstream", "downstream"))
        yield s.Network(on=on, link=link, toxic=cut, duration_s=lasts_s, cuts=True)
        late = Toxic(type="latency", attributes={"latency": 500})
        yield s.Network(on=on, link=link, toxic=(late,), duration_s=lasts_s)
    yield s.SlowFlash(on=on, write_bytes_per_s=100_000, duration_s=lasts_s)
    yield s.DiskFull(on=on, duration_s=lasts_s)
    yield s.Pause(on=on, duration_s=lasts_s)
    yield s.Slow(on=on, factor=4.0, duration_s=lasts_s)
    yield s.KillChild(on=on)
    yield s.Grow(on=on)
    yield s.Partition(on=on, off="rest", duration_s=lasts_s)
    yield s.Partition(on=on, off="coordinator", one_way=True, duration_s=lasts_s)
    yield s.OutOfMemory(on=on, replace_after_s=0.1)
    yield s.ThrottleCpu(on=on, cpus=0.2, duration_s=lasts_s)
    yield s.DnsGone(on=on, duration_s=lasts_s)
    for name, count in sorted(known.calm_points.items(), key=lambda item: (item[1], item[0])):
        held = Trigger(point=name, nth=count // 2 + 1)
        yield s.Hold(on=held, duration_s=lasts_s)
    for misbehaviour in misbehaviours.plain_metadata(cluster.cloud):
        yield s.Misbehave(on=on, how=misbehaviour, duration_s=lasts_s)
