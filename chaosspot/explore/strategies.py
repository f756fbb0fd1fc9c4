"""Strategies for faults and whole schedules: whatever a file may say and a trainer can be given.

Everything that is supported is drawn unless an argument says otherwise. Smaller draws have fewer
faults, earlier and milder ones, and fewer nodes. Every draw is valid, and its TOML text gives back
an equal schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import assume, currently_in_test_context, note
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot import toml
from chaosspot.explore import misbehaviours
from chaosspot.explore.ground import Ground, ground_of
from chaosspot.explore.places import clusters, most_taken, of_cluster
from chaosspot.explore.times import at_points, seconds, triggers
from chaosspot.nodes import Cloud, ClusterSpec, StoreKind
from chaosspot.schedule import FaultKind, Schedule, Target, Trigger
from chaosspot.trainers import Trainer

__all__ = ["bound", "fair", "faults", "makeable", "preemptions", "schedules", "supplied", "within"]

_LONGEST_S = 5.0  # of what ends by itself
_LEAD_S = 4.0  # the shortest notice
_SEEDS = st.integers(0, 3)  # which nodes are hit: a few choices are as good as many


def schedules(
    *,
    trainer: Trainer | str | None = None,
    kinds: Collection[str] | None = None,
    min_faults: int = 1,
    max_faults: int = 3,
    min_nodes: int | None = None,
    max_nodes: int | None = None,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    points: Sequence[str] | None = None,
    events: Sequence[str] | None = None,
    on: SearchStrategy[Trigger] | None = None,
) -> SearchStrategy[Schedule]:
    """Schedules that can be run; the smallest is one kill of one node at the first step.

    When a test fails, the schedule is shown as TOML, with the command that replays it without
    Hypothesis.

    Args:
        trainer: what is attacked, a description or its name: only what can be made to it is drawn,
            and nothing that it is known not to survive. Without one, everything.
        kinds: of faults (``"kill"``, ``"notice"``, ...), instead of all.
        min_faults, max_faults: faults in a schedule.
        min_nodes, max_nodes: worker nodes at the start.
        cloud, store: instead of any that suit.
        points, events: what triggers may wait for.
        on: triggers, instead of all that :func:`chaosspot.explore.triggers` draws.

    Raises:
        ValueError: an unknown kind or one that cannot be made, or bounds that leave nothing.
        ContentError, FileError: the trainer cannot be read.
    """
    if not 0 <= min_faults <= max_faults:
        raise ValueError(f"min_faults = {min_faults}, max_faults = {max_faults}: nothing between")
    found = trainer
    ground = ground_of(
        found,
        kinds=kinds,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        cloud=cloud,
        store=store,
        points=points,
        events=events,
    )
    name = trainer.name if isinstance(trainer, Trainer) else trainer
    drawn = within(ground, min_faults=min_faults, max_faults=max_faults, on=on)
    return drawn.map(lambda plan: _told(plan, name))


def within(
    ground: Ground,
    *,
    min_faults: int = 1,
    max_faults: int = 3,
    on: SearchStrategy[Trigger] | None = None,
) -> SearchStrategy[Schedule]:
    """Schedules on this ground."""
    return _schedules(ground, min_faults, max_faults, on)


def faults(
    *,
    cluster: ClusterSpec | None = None,
    trainer: Trainer | str | None = None,
    kinds: Collection[str] | None = None,
    on: SearchStrategy[Trigger] | None = None,
) -> SearchStrategy[FaultKind]:
    """Faults that can be made to ``cluster``; the smallest is a kill of one node.

    Args:
        cluster: whose nodes are hit; one of four nodes in two zones with all that faults need.
        trainer, kinds, on: as in :func:`schedules`.

    Raises:
        ValueError: a kind that is unknown or needs what the cluster does not have.
        ContentError, FileError: the trainer cannot be read.
    """
    ground = ground_of(trainer, kinds=kinds)
    if cluster is None:
        group = replace(ClusterSpec().group[0], flash_bytes=ground.flash_bytes)
        cluster = ClusterSpec(group=(group,), store="s3" if ground.store is None else ground.store)
    ground = replace(ground, cloud=cluster.cloud, store=cluster.store)
    if not makeable(ground, cluster):
        raise ValueError(f"kinds = {', '.join(ground.kinds)}: none can be made to this cluster")
    return bound(ground, cluster, on=on)


def preemptions(
    *,
    trainer: Trainer | str | None = None,
    min_faults: int = 1,
    max_faults: int = 4,
    min_nodes: int | None = None,
    max_nodes: int | None = None,
    min_lead_s: float = 4.0,
    max_lead_s: float = 10.0,
    max_wave_s: float = 5.0,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
) -> SearchStrategy[Schedule]:
    """What clouds do to spot nodes, and nothing else; the smallest is one kill of one node.

    Nodes go with a notice or without one, alone or together: a whole zone, a whole family, or a
    wave, in which one after another goes. Replacements come.

    Args:
        trainer: only what can be made to it is drawn.
        min_faults, max_faults: how often something is taken.
        min_nodes, max_nodes: worker nodes at the start.
        min_lead_s, max_lead_s: seconds between a notice and its deadline.
        max_wave_s: seconds that a wave takes at most.
        cloud, store: instead of any that suit.

    Raises:
        ValueError: bounds that leave nothing.
        ContentError, FileError: the trainer cannot be read.
    """
    if not 0 < min_lead_s <= max_lead_s:
        raise ValueError(f"min_lead_s = {min_lead_s}, max_lead_s = {max_lead_s}: nothing between")
    if not 1 <= min_faults <= max_faults:
        raise ValueError(f"min_faults = {min_faults}, max_faults = {max_faults}: nothing between")
    ground = ground_of(
        trainer,
        kinds=("kill", "notice"),
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        cloud=cloud,
        store=store,
    )
    name = trainer.name if isinstance(trainer, Trainer) else trainer
    drawn = _preemptions(ground, min_faults, max_faults, (min_lead_s, max_lead_s), max_wave_s)
    return drawn.map(lambda plan: _told(plan, name))


@st.composite
def bound(
    draw: DrawFn,
    ground: Ground,
    cluster: ClusterSpec,
    *,
    on: SearchStrategy[Trigger] | None = None,
) -> FaultKind:
    """Faults of one cluster, on this ground."""
    possible = makeable(ground, cluster)
    if not possible:
        raise ValueError(f"kinds = {', '.join(ground.kinds)}: none can be made to this cluster")
    when = _times(ground.events, ground.points) if on is None else on
    fault = _MAKERS[draw(st.sampled_from(possible))](_Drawing(draw, ground, cluster, when))
    assume(ground.allows(fault))
    return fault


def makeable(ground: Ground, cluster: ClusterSpec) -> tuple[str, ...]:
    """The kinds for which cluster and ground have what they need."""
    needs = {
        "disk-full": all(group.flash_bytes is not None for group in cluster.group),
        "slow-flash": all(group.flash_bytes is None for group in cluster.group),
        "object-store": cluster.store == "s3",
        "hold": ground.points,
    }
    return tuple(kind for kind in _MAKERS if kind in ground.kinds and needs.get(kind, True))


@functools.lru_cache
def _times(events: tuple[str, ...], points: tuple[str, ...]) -> SearchStrategy[Trigger]:
    return triggers(events=events, points=points)


class _Drawing(NamedTuple):
    """What the makers of faults draw with, and from."""

    draw: DrawFn
    ground: Ground
    cluster: ClusterSpec
    times: SearchStrategy[Trigger]

    def on(self) -> Trigger:
        return self.draw(self.times)

    def seconds(self, least_s: float, most_s: float) -> float:
        return self.draw(seconds(least_s, most_s))

    def of(self, *choices: Any) -> Any:
        """One of these; the first is the mildest."""
        return self.draw(st.sampled_from(choices))

    def target(self, *, coordinator: bool = False) -> Target | None:
        """None, which is whoever pulled the trigger, or nodes of the cluster."""
        if self.of(True, False):
            return None
        nodes = self.cluster.nodes()
        hit = coordinator and self.ground.coordinator
        return self.draw(of_cluster(nodes, min_count=1, max_count=len(nodes), coordinator=hit))


def _kill(d: _Drawing) -> FaultKind:
    fault = s.Kill(
        on=d.on(), target=d.target(coordinator=True), replace_after_s=d.seconds(0.1, 3.0)
    )
    match d.of("replaced", "late", "reboots", "gone"):
        case "late":
            return replace(fault, start_delay_s=d.seconds(0.1, 2.0))
        case "reboots":
            return replace(fault, keep_flash=True)
        case "gone":
            return replace(fault, replace_after_s=None)
    return fault


def _terminate(d: _Drawing) -> FaultKind:
    return s.Terminate(
        on=d.on(),
        target=d.target(),
        grace_s=d.seconds(3.0, 10.0),
        scope=d.of("tree", "main"),
        replace_after_s=d.of(0.1, 1.0, 3.0, None),
    )


def _notice(d: _Drawing) -> FaultKind:
    fault = s.Notice(
        on=d.on(), target=d.target(), lead_s=d.seconds(_LEAD_S, 10.0), shutdown_s=d.of(0.5, 2.0)
    )
    match d.of("kept", "cut short", "withdrawn", "spares"):
        case "spares":
            return replace(fault, spares=True)
        case "withdrawn":
            return replace(fault, withdraw_after_s=d.seconds(0.5, fault.lead_s - 0.1))
        case "cut short":
            early_s = d.seconds(_LEAD_S if d.ground.fair else 0.0, fault.lead_s)
            return replace(fault, kill_after_s=early_s, replace_after_s=d.of(0.1, 1.0, 3.0))
    return replace(fault, replace_after_s=d.of(0.1, 1.0, 3.0, None))


def _misbehave(d: _Drawing) -> FaultKind:
    return s.Misbehave(
        on=d.on(),
        target=d.target(),
        how=d.draw(misbehaviours.metadata(d.cluster.cloud)),
        duration_s=d.seconds(0.5, _LONGEST_S),
    )


_MAKERS: dict[str, Callable[[_Drawing], FaultKind]] = {
    "kill": _kill,
    "terminate": _terminate,
    "notice": _notice,
    "kill-child": lambda d: s.KillChild(on=d.on(), target=d.target()),
    "pause": lambda d: s.Pause(on=d.on(), target=d.target(), duration_s=d.seconds(0.5, _LONGEST_S)),
    "slow": lambda d: s.Slow(
        on=d.on(),
        target=d.target(),
        factor=d.of(2.0, 4.0, 10.0),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "hold": lambda d: s.Hold(
        on=d.draw(at_points(d.ground.points, max_nth=5)), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "disk-full": lambda d: s.DiskFull(
        on=d.on(), target=d.target(), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "slow-flash": lambda d: s.SlowFlash(
        on=d.on(),
        target=d.target(),
        write_bytes_per_s=d.of(10_000_000, 1_000_000, 100_000),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "partition": lambda d: s.Partition(
        on=d.on(),
        target=d.target(),
        off=d.of("coordinator", "zones", "rest"),
        one_way=d.of(False, True),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "out-of-memory": lambda d: s.OutOfMemory(
        on=d.on(), target=d.target(), replace_after_s=d.seconds(0.1, 3.0)
    ),
    "throttle-cpu": lambda d: s.ThrottleCpu(
        on=d.on(),
        target=d.target(),
        cpus=d.of(0.5, 0.2, 0.1),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "dns-gone": lambda d: s.DnsGone(
        on=d.on(), target=d.target(), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "grow": lambda d: s.Grow(on=d.on(), count=d.of(1, 2)),
    "misbehave": _misbehave,
    "object-store": lambda d: s.ObjectStore(
        on=d.on(), how=d.draw(misbehaviours.object_store()), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "network": lambda d: d.draw(misbehaviours.network(d.times, d.ground.links, _LONGEST_S)),
}


@st.composite
def _cluster(draw: DrawFn, ground: Ground) -> ClusterSpec:
    if ground.clusters:
        return draw(st.sampled_from(ground.clusters))
    store = ground.store
    if store is None and ("object-store" in ground.kinds):
        store = draw(st.sampled_from(["directory", "s3"]))
    if store is None:
        store = "directory"
    if ground.kinds == ("object-store",):
        store = "s3"
    flash_bytes = ground.flash_bytes
    if flash_bytes is not None and ground.kinds != ("disk-full",):
        flash_bytes = draw(st.sampled_from([None, flash_bytes]))
    cluster = draw(
        clusters(
            min_nodes=ground.min_nodes,
            max_nodes=ground.max_nodes,
            cloud=ground.cloud or draw(st.sampled_from(["aws", "gcp", "azure"])),
            store=store,
            flash_bytes=flash_bytes,
        )
    )
    if not makeable(ground, cluster):  # it needs what this one happens not to have
        group = tuple(replace(g, flash_bytes=ground.flash_bytes) for g in cluster.group)
        cluster = replace(cluster, group=group, store=ground.store or "s3")
    return cluster


@st.composite
def _schedules(
    draw: DrawFn,
    ground: Ground,
    min_faults: int,
    max_faults: int,
    on: SearchStrategy[Trigger] | None,
) -> Schedule:
    cluster = draw(_cluster(ground))
    drawn = draw(st.lists(bound(ground, cluster, on=on), min_size=min_faults, max_size=max_faults))
    plan = Schedule(seed=draw(_SEEDS), cluster=cluster, fault=tuple(drawn))
    return supplied(fair(plan) if ground.fair else plan, min_alive=ground.min_alive)


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
    left on a notice that came to nothing: only one node in several gets such a one.
    """
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


@st.composite
def _preemptions(
    draw: DrawFn,
    ground: Ground,
    min_faults: int,
    max_faults: int,
    lead_s: tuple[float, float],
    max_wave_s: float,
) -> Schedule:
    cluster = draw(
        clusters(
            min_nodes=ground.min_nodes,
            max_nodes=ground.max_nodes,
            cloud=ground.cloud or draw(st.sampled_from(["aws", "gcp", "azure"])),
            store=ground.store or "directory",
        )
    )
    spot = [node for node in cluster.nodes() if node.pool == "spot"]
    times = triggers(events=(), points=())
    taken: list[FaultKind] = []
    while len(taken) < min_faults or (len(taken) < max_faults and draw(st.booleans())):
        on, room = draw(times), max_faults - len(taken)
        takes = _takes(draw, lead_s)
        if draw(st.booleans()) and room > 1:  # a wave
            wave = draw(st.integers(2, room))
            gaps = [draw(seconds(0.1, max_wave_s)) for _ in range(wave - 1)]
            begins = [0.0, *sorted(gaps)]
            taken += [takes(replace(on, delay_s=gap), Target(count=1)) for gap in begins]
        else:
            target = draw(of_cluster(spot, min_count=1, max_count=len(spot)))
            taken.append(takes(on, target))
    plan = Schedule(seed=draw(_SEEDS), cluster=cluster, fault=tuple(taken))
    return supplied(plan, min_alive=ground.min_alive)


def _takes(draw: DrawFn, lead_s: tuple[float, float]) -> Callable[[Trigger, Target], FaultKind]:
    """How nodes go: all of a wave in the same way."""
    back_s = draw(seconds(0.1, 3.0))
    if not draw(st.booleans()):
        return lambda on, target: s.Kill(on=on, target=target, replace_after_s=back_s)
    lead = draw(seconds(*lead_s))
    return lambda on, target: s.Notice(
        on=on, target=target, lead_s=lead, shutdown_s=0.5, replace_after_s=back_s
    )


def _told(plan: Schedule, trainer: str | None) -> Schedule:
    """The schedule, which a failing test will show as a file and a command."""
    if currently_in_test_context():
        who = f" --trainer {trainer}" if trainer else ""
        note(
            f"The schedule, as failing.toml:\n\n{toml.dumps(plan)}\n"
            f"Without Hypothesis: chaosspot attack failing.toml{who}"
        )
    return plan
