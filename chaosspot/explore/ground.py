"""What can go wrong for a trainer: the ground that an exploration covers.

Decided from a description, before anything runs; what a trainer is known not to survive
(``[[limit]]``) is left out, since finding it again says nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import get_args

from chaosspot import schedule as s
from chaosspot import trainers
from chaosspot.nodes import Cloud, ClusterSpec, Group, StoreKind
from chaosspot.schedule import Fault, FaultKind, Link, Misbehave, Network, Schedule
from chaosspot.toml import Value
from chaosspot.trainers import Trainer

__all__ = ["EVENTS", "KINDS", "Ground", "Nature", "ground_of", "nature"]

_EVERY = tuple(kind.kind for kind in get_args(FaultKind))
_ISOLATED = tuple(kind.kind for kind in get_args(FaultKind) if kind.NEEDS_ISOLATION)
KINDS: tuple[str, ...] = tuple(kind for kind in _EVERY if kind not in _ISOLATED)
"""What is drawn unless something else is asked for: what nodes need no containers for."""
EVENTS = (
    "commit",
    "join",
    "snapshot.staged",
    "snapshot.local",
    "snapshot.durable",
    "restore",
    "notice",
    "drain",
    "leave",
)
_POINTS = ("step.before-allreduce", "step.after-commit", "snapshot.before-rename")
_FLASH_BYTES = 1 << 24  # what a group's flash holds where disks may be full

Nature = tuple[str, str, str]
"""A fault's kind, whom or what it hits, and how: what two faults have in common."""


def nature(fault: Fault) -> Nature:
    """What sort of fault this is, without its time and its numbers."""
    role = fault.target.role if fault.target else "worker"
    if isinstance(fault, Network):
        cut = fault.cuts or any(toxic.type in _BREAKING for toxic in fault.toxic)
        return (fault.kind, fault.link, "cut" if cut else "bad")
    if isinstance(fault, Misbehave | s.ObjectStore):
        return (fault.kind, "service", str(fault.how.__struct_config__.tag))
    if isinstance(fault, s.Kill) and fault.keep_flash:
        return (fault.kind, role, "reboot")
    return (fault.kind, role, "")


_BREAKING = ("timeout", "reset_peer", "limit_data", "slow_close")
_ORDINARY: frozenset[Nature] = frozenset(
    (kind, "worker", "") for kind in ("kill", "terminate", "notice")
)


class Ground(Value, frozen=True, kw_only=True):
    """Which faults may be drawn, on how many nodes, triggered by what.

    ``points`` and ``events`` are what a trigger may wait for. ``coordinator``: there is one that
    can be hit. ``min_alive``: so many nodes are left, or their replacements come. ``clusters``:
    these alone, instead of any. ``fair``: no notice is made impossible to keep by another fault.
    """

    kinds: tuple[str, ...] = KINDS
    min_nodes: int = 1
    max_nodes: int = 8
    min_alive: int = 1
    cloud: Cloud | None = None
    store: StoreKind | None = None
    coordinator: bool = True
    points: tuple[str, ...] = _POINTS
    events: tuple[str, ...] = EVENTS
    limited: tuple[Nature, ...] = ()
    clusters: tuple[ClusterSpec, ...] = ()
    fair: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.kinds:
            if kind not in _EVERY:
                near = difflib.get_close_matches(kind, _EVERY, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; valid: {', '.join(_EVERY)}"
                raise ValueError(f"kinds: there is no kind {kind!r}{hint}")
        if not self.kinds:
            raise ValueError("kinds = (): no kind of fault is left that could be drawn")
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(
                f"min_nodes = {self.min_nodes} and max_nodes = {self.max_nodes}: "
                "1 <= min_nodes <= max_nodes is needed"
            )

    @property
    def links(self) -> tuple[Link, ...]:
        """The links that a network fault may impair."""
        found: list[Link] = ["metadata"]
        if self.coordinator:
            found.append("coordinator")
        if self.store == "s3":
            found.append("store")
        return tuple(found)

    @property
    def flash_bytes(self) -> int | None:
        """How large flashes have to be, so that every kind can be made."""
        return _FLASH_BYTES if "disk-full" in self.kinds else None

    def allows(self, fault: Fault) -> bool:
        """Whether the fault is none that the trainer is known not to survive."""
        return nature(fault) not in self.limited


def ground_of(
    trainer: Trainer | str | None = None,
    *,
    kinds: Collection[str] | None = None,
    min_nodes: int | None = None,
    max_nodes: int | None = None,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    points: Iterable[str] | None = None,
    events: Iterable[str] | None = None,
    runs: Path = Path("runs"),
) -> Ground:
    """What can be made to a trainer; without one, everything that there is.

    Args:
        trainer: a description, or the name or path of one.
        kinds: of faults, instead of all that suit; the trainer's limits are then not looked at.
        min_nodes, max_nodes: worker nodes at the start; by default as few as make sense.
        cloud: whose metadata service nodes ask; any.
        store: what outlives nodes; an object store where the trainer keeps its state in one.
        points, events: what triggers may wait for, instead of what trainers have in common.
        runs: where run directories would be, whose drive may or may not be one that can be slowed.

    Raises:
        ValueError: an unknown kind, a kind that this trainer cannot be given, or none is left.
        ContentError, FileError: the trainer cannot be read.
    """
    if isinstance(trainer, str):
        trainer = trainers.load(trainer)
    asked = None if kinds is None else tuple(k for k in _EVERY if k in kinds)
    if kinds is not None:
        Ground(kinds=tuple(kinds))  # an unknown one is an error
    if trainer is None:
        return Ground(
            kinds=KINDS if asked is None else asked,
            min_nodes=1 if min_nodes is None else min_nodes,
            max_nodes=max(8, min_nodes or 1) if max_nodes is None else max_nodes,
            cloud=cloud,
            store=store,
            points=_POINTS if points is None else tuple(points),
            events=EVENTS if events is None else tuple(events),
        )
    least = max(trainer.min_nodes, min_nodes or 1)
    most = max(least, 4) if trainer.max_nodes is None else trainer.max_nodes
    most = most if max_nodes is None else max_nodes
    if trainer.max_nodes is not None and max(least, most) > trainer.max_nodes:
        raise ValueError(
            f"{max(least, most)} nodes, but {trainer.name} runs on {trainer.max_nodes} at most"
        )
    in_objects = trainer.object_store
    if store is None:
        store = "s3" if in_objects is not None and in_objects.required else "directory"
    lacking = _lacking(trainer, store, runs)
    limits = () if asked is not None else _limits(trainer)
    lacking.update(dict.fromkeys(_whole(limits), f"{trainer.name} is known not to survive it"))
    if asked is not None and (out := [kind for kind in asked if kind in lacking]):
        raise ValueError(f"kinds: {out[0]!r} cannot be made: {lacking[out[0]]}")
    told = trainer.patterns
    if points is None:
        points = () if told is not None else _POINTS
    if events is None:
        events = EVENTS if told is None else _printed(trainer)
    return Ground(
        kinds=tuple(k for k in (KINDS if asked is None else asked) if k not in lacking),
        min_nodes=least,
        max_nodes=most,
        min_alive=trainer.min_nodes,
        cloud=cloud,
        store=store,
        coordinator=trainer.coordinator is not None
        and ("kill", "coordinator", "") not in limits
        and asked is None,
        points=tuple(points),
        events=tuple(events),
        limited=limits,
        fair=True,
    )


def _lacking(trainer: Trainer, store: StoreKind, runs: Path) -> dict[str, str]:
    """The kinds that cannot be made to this trainer on this machine, and why."""
    from chaosspot.cluster.processes import unsupported

    lacking = dict.fromkeys(_ISOLATED, "it needs nodes as containers, and these are processes")
    small = ClusterSpec(group=(Group(count=1, flash_bytes=_FLASH_BYTES),))
    if why := unsupported(Schedule(cluster=small), runs):
        lacking["disk-full"] = why
    slow = s.SlowFlash(on=s.Trigger(at_step=1), write_bytes_per_s=1_000_000)
    if why := unsupported(Schedule(fault=(slow,)), runs):
        lacking["slow-flash"] = why
    if trainer.patterns is not None:
        lacking["hold"] = f"{trainer.name} is read by patterns: it has no points"
    if store != "s3":
        lacking["object-store"] = f"{trainer.name} keeps its state in a directory (store = 's3')"
    if trainer.max_nodes is not None:
        lacking["grow"] = f"{trainer.name} runs on {trainer.max_nodes} nodes at most (max_nodes)"
    return lacking


def _limits(trainer: Trainer) -> tuple[Nature, ...]:
    """The natures of faults that the trainer is known not to survive; a sick one's healthy too."""
    known = list(trainer.limit)
    if trainer.sick is not None:
        known += trainers.load(trainer.sick.healthy).limit
    found: dict[Nature, None] = {}
    for limit in known:
        _, plan = s.load(limit.schedule)
        for one in map(nature, plan.fault):
            if one not in _ORDINARY:
                found[one] = None
    return tuple(found)


def _whole(limits: Iterable[Nature]) -> list[str]:
    """The kinds of which no other nature is left."""
    single = ("hold", "kill-child", "pause", "slow", "disk-full", "slow-flash", "grow")
    return [kind for kind, _, _ in limits if kind in single]


def _printed(trainer: Trainer) -> tuple[str, ...]:
    """The events that a trainer's patterns find in its output."""
    patterns = trainer.patterns
    return tuple(
        name for name in ("commit", "restore") if patterns and getattr(patterns, name) is not None
    )
