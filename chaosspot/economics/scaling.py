"""From an attacked job to the costs of a job: its own, or a larger one that is described.

The seconds of a small model say nothing about a large one by themselves. What carries over is
what was counted: steps lost, steps between snapshots, the share of notices kept, and the part of a
restart that does not move state. The rest is worked out from the larger job's own figures, and all
of them must be stated.
"""

from __future__ import annotations

import msgspec

from chaosspot.checked import above_0, share
from chaosspot.economics.interval import Costs
from chaosspot.economics.measured import Measured

__all__ = ["JobSize", "costs_of", "job_size"]


class JobSize(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was not attacked. ``state_bytes`` and ``bandwidth_bytes_per_s`` are of one node:
    what it copies for a snapshot, and gets back in a restart, and how fast.

    Raises:
        ValueError: a value is not positive.
    """

    state_bytes: float
    bandwidth_bytes_per_s: float
    step_s: float

    def __post_init__(self) -> None:
        above_0(**{name: getattr(self, name) for name in self.__struct_fields__})

    @property
    def copy_s(self) -> float:
        """One copy of the state."""
        return self.state_bytes / self.bandwidth_bytes_per_s


def job_size(
    *, state_bytes: float | None, bandwidth_bytes_per_s: float | None, step_s: float | None
) -> JobSize | None:
    """The described job; None if nothing is said about one.

    Raises:
        ValueError: only a part is said; or a value is not positive.
    """
    if state_bytes is None and bandwidth_bytes_per_s is None and step_s is None:
        return None
    if state_bytes is None or bandwidth_bytes_per_s is None or step_s is None:
        raise ValueError(
            f"state_bytes = {state_bytes}, bandwidth_bytes_per_s = {bandwidth_bytes_per_s}, "
            f"step_s = {step_s}: a larger job needs all three, else its seconds would be guessed"
        )
    return JobSize(
        state_bytes=state_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, step_s=step_s
    )


def costs_of(
    measured: Measured,
    *,
    size: JobSize | None = None,
    interval_s: float | None = None,
    restart_s: float | None = None,
    noticed: float = 0.0,
) -> Costs:
    """What snapshots and interruptions cost the attacked job, or one of another ``size``.

    Args:
        measured: the attacks.
        size: of the job that is asked about; None for the attacked one as it is.
        interval_s: between snapshots; by default the promised number of steps.
        restart_s: of the attacked job, instead of the median.
        noticed: the share of interruptions that a notice announces.

    Raises:
        ValueError: nothing tells how often the job snapshots, or a value is out of its range.
    """
    share(noticed=noticed)
    step_s = size.step_s if size else measured.step_s
    if interval_s is None:
        if measured.snapshot_every_steps is None:
            raise ValueError(
                f"{measured.trainer} does not say after how many steps it snapshots: "
                "say the interval"
            )
        interval_s = measured.snapshot_every_steps * step_s
    back_s = measured.restart_s if restart_s is None else restart_s
    join_s, stall_s, flush_s = measured.join_s, measured.stall_s, measured.flush_s
    if size:
        # what the small copies took is taken off, what the large ones take is added
        back_s = max(0.0, back_s - stall_s) + size.copy_s
        join_s = max(0.0, join_s - stall_s) + size.copy_s
        flush_s = max(0.0, flush_s - stall_s) + size.copy_s
        stall_s = size.copy_s
    return Costs(
        interval_s=interval_s,
        stall_s=stall_s,
        restart_s=back_s,
        lost_s=measured.lost_steps * step_s if measured.peers_hold_state else None,
        join_s=join_s,
        flush_s=flush_s,
        flushed=noticed * (measured.flushed or 0.0),
    )
