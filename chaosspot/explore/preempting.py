"""Strategies for what clouds do to spot nodes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot.explore import places
from chaosspot.explore.fairness import supplied
from chaosspot.explore.ground import Ground, ground_of
from chaosspot.explore.places import SEEDS, of_cluster
from chaosspot.explore.shown import shown
from chaosspot.explore.times import seconds, triggers
from chaosspot.nodes import Cloud, ClusterSpec, StoreKind
from chaosspot.schedule import FaultKind, Schedule, Target, Trigger
from chaosspot.trainers import Trainer

__all__ = ["preemptions"]


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
    clusters: Sequence[ClusterSpec] = (),
) -> SearchStrategy[Schedule]:
    """What clouds do to spot nodes, and nothing else; the smallest is one kill of one node.

    Nodes go with a notice or without one, alone or together: a whole zone, a whole family, or a
    wave, in which one after another goes. Replacements come. In one schedule all go with a notice,
    or all without: who is killed before its deadline proves nothing of what it made of its notice.

    Args:
        trainer: only what can be made to it is drawn.
        min_faults, max_faults: how often something is taken.
        min_nodes, max_nodes: worker nodes at the start.
        min_lead_s, max_lead_s: seconds between a notice and its deadline.
        max_wave_s: seconds that a wave takes at most.
        cloud, store: instead of any that suit.
        clusters: these alone, instead of any: attacks on one cluster share an undisturbed twin.

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
    ground = replace(ground, clusters=tuple(clusters))
    name = trainer.name if isinstance(trainer, Trainer) else trainer
    drawn = _preemptions(ground, min_faults, max_faults, (min_lead_s, max_lead_s), max_wave_s)
    return drawn.map(lambda plan: shown(plan, name))


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
        st.sampled_from(ground.clusters)
        if ground.clusters
        else places.clusters(
            min_nodes=ground.min_nodes,
            max_nodes=ground.max_nodes,
            cloud=ground.cloud or draw(st.sampled_from(["aws", "gcp", "azure"])),
            store=ground.store or "directory",
        )
    )
    spot = [node for node in cluster.nodes() if node.pool == "spot"]
    times, announced = triggers(events=(), points=()), draw(st.booleans())
    taken: list[FaultKind] = []
    while len(taken) < min_faults or (len(taken) < max_faults and draw(st.booleans())):
        on, room = draw(times), max_faults - len(taken)
        takes = _takes(draw, lead_s, announced=announced)
        if draw(st.booleans()) and room > 1:  # a wave
            wave = draw(st.integers(2, room))
            gaps = [draw(seconds(0.1, max_wave_s)) for _ in range(wave - 1)]
            begins = [0.0, *sorted(gaps)]
            taken += [takes(replace(on, delay_s=gap), Target(count=1)) for gap in begins]
        else:
            target = draw(of_cluster(spot, min_count=1, max_count=len(spot)))
            taken.append(takes(on, target))
    plan = Schedule(seed=draw(SEEDS), cluster=cluster, fault=tuple(taken))
    return supplied(plan, min_alive=ground.min_alive)


def _takes(
    draw: DrawFn, lead_s: tuple[float, float], *, announced: bool
) -> Callable[[Trigger, Target], FaultKind]:
    """How nodes go: all of a wave in the same way."""
    back_s = draw(seconds(0.1, 3.0))
    if not announced:
        return lambda on, target: s.Kill(on=on, target=target, replace_after_s=back_s)
    lead = draw(seconds(*lead_s))
    return lambda on, target: s.Notice(
        on=on, target=target, lead_s=lead, shutdown_s=0.5, replace_after_s=back_s
    )
