"""What an attack will be, decided and checked before anything runs."""

from __future__ import annotations

import secrets
from typing import get_args

from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot.conductor.links import links_of
from chaosspot.schedule import Cloud, Schedule, StoreKind
from chaosspot.trainers import Trainer
from chaosspot.words import CONTROL, count

__all__ = ["UnsuitedError", "refuse", "settled", "unsuited"]


def settled(
    schedule: Schedule,
    *,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    nodes: int | None,
    seed: int | None,
) -> Schedule:
    """The schedule as it will run: its cloud, store, size and seed decided, and checked.

    Raises:
        FileError: it cannot be run.
        ValueError: an unknown cloud or store, or too few nodes.
    """
    if cloud is not None:
        if cloud not in get_args(Cloud):
            raise ValueError(f"cloud = {cloud!r}; valid: {', '.join(get_args(Cloud))}")
        schedule = replace(schedule, cluster=replace(schedule.cluster, cloud=cloud))
    if store is not None:
        if store not in get_args(StoreKind):
            raise ValueError(f"store = {store!r}; valid: {', '.join(get_args(StoreKind))}")
        schedule = replace(schedule, cluster=replace(schedule.cluster, store=store))
    if nodes is not None:
        schedule = replace(schedule, cluster=schedule.cluster.resized(nodes))
    if seed is None:
        seed = schedule.seed if schedule.seed is not None else secrets.randbelow(2**31)
    schedule = replace(schedule, seed=seed)
    schedule.check()
    return schedule


class UnsuitedError(ValueError):
    """A trainer that a schedule's faults cannot be made to; nothing was started."""


def unsuited(plan: Schedule, trainer: Trainer) -> str:
    """Why the schedule's faults cannot be made to this trainer; empty if they can."""
    nodes = len(plan.cluster.nodes())
    if trainer.max_nodes is not None and nodes > trainer.max_nodes:
        return f"{count(nodes, 'node')}, but {trainer.name} runs on {trainer.max_nodes} at most"
    in_objects = trainer.object_store
    if plan.cluster.store == "directory" and in_objects is not None and in_objects.required:
        return f"{trainer.name} keeps its state in an object store alone: store = 's3' is needed"
    if plan.cluster.store != "directory" and in_objects is None:
        return (
            f"store = {plan.cluster.store!r}, but {trainer.name} keeps its state in a directory "
            "(a description with [object_store] says that it can do otherwise)"
        )
    if plan.cluster.store != "directory" and trainer.final is not None:
        return (
            f"store = {plan.cluster.store!r}, but the final checkpoint of {trainer.name} is read "
            "from a directory (final.checkpoint)"
        )
    if "coordinator" in links_of(plan) and trainer.coordinator is None:
        return f"it impairs the coordinator's link, but {trainer.name} has no coordinator"
    points = [fault.on.point for fault in plan.fault if fault.on.point is not None]
    if points and trainer.patterns is not None:
        return (
            f"it waits for point {points[0]!r}, but {trainer.name} is read by patterns: only a "
            "trainer that calls chaosspot.probe has points"
        )
    return ""


def refuse(name: str, plan: Schedule, trainer: Trainer, steps: int | None) -> None:
    """Refuse what is known to come to nothing: no end, or a trigger that can never come.

    Raises:
        UnsuitedError: the faults cannot be made to this trainer.
        ValueError: with the fault and why.
    """
    if CONTROL.search(name) or "/" in name or name in ("", ".", ".."):
        raise ValueError(f"name = {name!r} cannot be a directory's")
    if trainer.final is not None:
        if steps not in (None, trainer.final.at_step):
            raise ValueError(
                f"steps = {steps}, but {trainer.name} ends at step {trainer.final.at_step} by "
                "itself (final.at_step)"
            )
        steps = trainer.final.at_step
    if why := unsuited(plan, trainer):
        raise UnsuitedError(f"{name}: {why}")
    if not plan.fault and steps is None:
        raise ValueError(f"{name} has no fault: say at which step to stop (steps)")
    for index, fault in enumerate(plan.fault):
        on = fault.on
        if on.at_step is not None and steps is not None and on.at_step >= steps:
            raise ValueError(
                f"{name}: fault {index} waits for step {on.at_step}, but the run stops at step "
                f"{steps}: it can never act"
            )
        wait_s = (on.at_s or 0.0) + s.delay(fault, index, plan.seed or 0)
        if wait_s >= trainer.timeouts.run_s:
            raise ValueError(
                f"{name}: fault {index} waits for {wait_s:g} s, but {trainer.name} is stopped "
                f"after {trainer.timeouts.run_s:g} s (timeouts.run_s): it can never act"
            )
