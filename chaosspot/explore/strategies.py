"""Strategies for faults and whole schedules: whatever a file may say and a trainer can be given.

Everything that is supported is drawn unless an argument says otherwise. Smaller draws have fewer
faults, earlier and milder ones, and fewer nodes. Every draw is valid, and its TOML text gives back
an equal schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from chaosspot.explore.fairness import fair, supplied
from chaosspot.explore.ground import Ground, ground_of
from chaosspot.explore.makers import bound, makeable
from chaosspot.explore.places import SEEDS, clusters
from chaosspot.explore.shown import shown
from chaosspot.nodes import Cloud, ClusterSpec, StoreKind
from chaosspot.schedule import FaultKind, Schedule, Trigger
from chaosspot.trainers import Trainer

__all__ = ["faults", "schedules", "within"]


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
    ground = ground_of(
        trainer,
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
    return drawn.map(lambda plan: shown(plan, name))


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
    plan = Schedule(seed=draw(SEEDS), cluster=cluster, fault=tuple(drawn))
    return supplied(fair(plan) if ground.fair else plan, min_alive=ground.min_alive)
