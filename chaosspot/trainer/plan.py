"""Every decision the trainer takes, as pure functions: no torch, no clock, no file, no socket."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Candidate",
    "DrainPlan",
    "drain_plan",
    "is_uploader",
    "keep_waiting",
    "owned_shards",
    "restore_order",
    "snapshot_due",
    "surplus",
]

Tier = Literal["local", "store"]

_EXIT_MARGIN_S = 1.0  # kept free before a deadline for leaving and exiting
_STEP_RESERVE_S = 4.0  # a notice with less time left does not wait for peers any more


def owned_shards(rank: int | None, world: int, micro_shards: int) -> range:
    """Micro-shards that ``rank`` of ``world`` computes; none when it does not participate.

    For every world the ranks' shares are disjoint, cover all shards and differ by at most one.
    """
    return range(0) if rank is None else range(rank, micro_shards, world)


def snapshot_due(step: int, every_steps: int, last_step: int) -> bool:
    """Whether the state after ``step`` is to be snapshotted."""
    return step % every_steps == 0 or step >= last_step


def is_uploader(rank: int | None) -> bool:
    """Whether this rank puts the regular snapshots into the store: one rank is enough."""
    return rank == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A snapshot that claims to be complete."""

    step: int
    tier: Tier


def restore_order(
    *, current_step: int, local: Iterable[int], store: Iterable[int]
) -> list[Candidate]:
    """Snapshots worth loading, best first: newest, and of equal ones the nearest.

    Peers' memory comes before all of them: whatever is not beyond ``current_step``, the step the
    peers brought this rank to, is left out.
    """
    steps: dict[Tier, set[int]] = {"local": set(local), "store": set(store)}
    found = [
        Candidate(step=step, tier=tier)
        for tier in steps
        for step in steps[tier]
        if step > current_step
    ]
    return sorted(found, key=lambda c: (-c.step, c.tier != "local"))


def surplus(steps: Iterable[int], keep: int, in_use: Collection[int] = ()) -> list[int]:
    """Complete snapshots that may be deleted: all but the newest ``keep`` and those in use."""
    newest_first = sorted(set(steps), reverse=True)
    return [step for step in newest_first[keep:] if step not in in_use]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainPlan:
    """What is still done between a notice and leaving."""

    snapshot: bool
    upload: bool
    flush_timeout_s: float
    """For writing, and again for uploading: their sum stays before the deadline."""


def drain_plan(*, time_left_s: float, on_flash: bool, in_store: bool, has_store: bool) -> DrainPlan:
    """What a noticed rank does at a step boundary with ``time_left_s`` until its node is gone.

    The flash dies with the node, so a snapshot is taken only as the source of an upload, or when
    the node may come back with its disk (there is time and nothing on it yet).
    """
    spare_s = max(0.0, time_left_s - _EXIT_MARGIN_S)
    wants_upload = has_store and not in_store
    return DrainPlan(
        snapshot=spare_s > 0 and not on_flash,
        upload=spare_s > 0 and wants_upload,
        flush_timeout_s=spare_s / 2,
    )


def keep_waiting(time_left_s: float | None) -> bool:
    """Whether to go on waiting for peers; ``time_left_s`` is None while there is no notice."""
    return time_left_s is None or time_left_s > _STEP_RESERVE_S
