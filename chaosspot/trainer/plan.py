"""Every decision the trainer takes, as pure functions: no torch, no clock, no file, no socket."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from chaosspot.trainer.cadence import optimum_s
from chaosspot.trainer.snapshot.parts import Part, SnapshotId

__all__ = [
    "Cadence",
    "DrainPlan",
    "Rates",
    "drain_plan",
    "keep_waiting",
    "owned_shards",
    "snapshot_due",
    "snapshot_now",
    "superfluous",
    "surplus",
]

_EXIT_MARGIN_S = 1.0  # kept free before a deadline for leaving and exiting
_STEP_RESERVE_S = 4.0  # a notice with less time left does not wait for peers any more


def owned_shards(rank: int | None, world: int, micro_shards: int) -> range:
    """Micro-shards that ``rank`` of ``world`` computes; none when it does not participate.

    For every world the ranks' shares are disjoint, cover all shards and differ by at most one.
    """
    return range(0) if rank is None else range(rank, micro_shards, world)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cadence:
    """How often to snapshot: every ``steps``, every ``seconds``, or as the optimum has it."""

    steps: int | None = None
    seconds: float | None = None
    mtbi_s: float = 3600.0
    """Mean time between interruptions of the whole job, for the optimum."""

    def interval_s(self, stall_s: float) -> float | None:
        """Seconds between snapshots that stop training for ``stall_s`` each; None where steps
        count."""
        if self.steps is not None:
            return None
        if self.seconds is not None:
            return self.seconds
        return optimum_s(stall_s=stall_s, mtbi_s=self.mtbi_s)


def snapshot_due(
    step: int,
    last_step: int,
    cadence: Cadence,
    *,
    since_s: float,
    stall_s: float,
    at_risk: bool,
    put_off: bool,
) -> bool:
    """Whether this rank wants the state after ``step`` to be snapshotted.

    One that wants it is enough, since all have to take part: ranks' clocks may differ.

    Args:
        since_s: time since the last snapshot.
        stall_s: how long the last one stopped training.
        at_risk: a member was lost that may not have saved its part of the last one.
        put_off: one was due after the step before, and was not taken.
    """
    interval_s = cadence.interval_s(stall_s)
    if interval_s is None:
        assert cadence.steps is not None
        due = step % cadence.steps == 0
    else:
        due = since_s >= interval_s
    return due or at_risk or put_off or step >= last_step


def snapshot_now(step: int, last_step: int, *, wanting: int, busy: int) -> bool:
    """Whether all ranks snapshot the state after ``step``, by what they voted in it.

    A rank whose disk is behind could take part only by giving up one that waits. Others would give
    up others, and none would ever be complete: so all put it off, unless it is the last.

    Args:
        wanting: ranks for which one is due.
        busy: ranks that write one, and have another waiting.
    """
    return wanting > 0 and (busy == 0 or step >= last_step)


def surplus(steps: Iterable[int], keep: int, in_use: Collection[int] = ()) -> list[int]:
    """Complete snapshots that may be deleted: all but the newest ``keep`` and those in use."""
    newest_first = sorted(set(steps), reverse=True)
    return [step for step in newest_first[keep:] if step not in in_use]


def superfluous(parts: Iterable[Part], complete: Iterable[SnapshotId], keep: int) -> list[Part]:
    """Parts in the store that may be deleted: of steps before the newest ``keep`` complete ones.

    What is complete is only judged by what is newer and complete, so that the last that can be
    restored always stays; parts of newer steps may still be joined by others.
    """
    steps = sorted({snapshot.step for snapshot in complete}, reverse=True)[:keep]
    return sorted(part for part in parts if steps and part.of.step < steps[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Bytes per second as last measured; None before the first time."""

    flash: float | None = None
    store: float | None = None

    def seconds(self, size: int, *, upload: bool) -> float:
        """How long ``size`` bytes take to flash, and with ``upload`` on to the store; what was
        never measured takes no time."""
        rates = [self.flash, *([self.store] if upload else [])]
        return sum(size / rate for rate in rates if rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainPlan:
    """What is still done between a notice and leaving."""

    parts: int | None
    """Parts that the last state is cut into, of which this rank saves one: as many as leave
    together. None: nothing is saved."""
    upload: bool
    predicted_s: float
    """How long it will take, by the rates measured before."""
    margin_s: float
    """What is left of the time then; negative: it will not be done in time."""
    flush_timeout_s: float
    """For all of it; ends before the deadline."""


def drain_plan(
    *,
    time_left_s: float,
    staying: int,
    leaving: int,
    total_bytes: int,
    has_store: bool,
    rates: Rates,
) -> DrainPlan:
    """What a noticed rank saves at a step boundary with ``time_left_s`` until its node is gone.

    The most valuable first: when nobody stays who holds the state, each of those who leave
    together saves its part of it, however little time there is. When somebody stays, the whole
    state is saved if it can be done in time, lest they are lost as well: peers' memory is all that
    would be left of the last steps. The flash dies with the node: what is on it counts only as
    the source of an upload, or when the node comes back with its disk.
    """
    spare_s = max(0.0, time_left_s - _EXIT_MARGIN_S)
    parts = 1 if staying else max(1, leaving)
    predicted_s = rates.seconds(-(-total_bytes // parts), upload=has_store)
    saves = spare_s > 0 and (not staying or predicted_s <= spare_s)
    return DrainPlan(
        parts=parts if saves else None,
        upload=saves and has_store,
        predicted_s=predicted_s,
        margin_s=spare_s - predicted_s,
        flush_timeout_s=spare_s,
    )


def keep_waiting(time_left_s: float | None) -> bool:
    """Whether to go on waiting for peers; ``time_left_s`` is None while there is no notice."""
    return time_left_s is None or time_left_s > _STEP_RESERVE_S
