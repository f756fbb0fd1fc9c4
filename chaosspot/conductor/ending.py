"""Why no worker of a run is left: pure functions over what was recorded."""

from __future__ import annotations

from collections.abc import Sequence

from chaosspot import history as h

__all__ = ["GOOD_ENDS", "end_of_all", "failed_node"]

GOOD_ENDS = ("decided", "steps", "finished")


def end_of_all(records: Sequence[h.Record]) -> str:
    """Why all workers are gone: the reason of the run's stop."""
    if failed_node(records):
        return "exited"
    hit = {name for r in records if isinstance(r, h.FaultInjected) for name in r.nodes}
    foreign = any(
        isinstance(r, h.NodeGone) and not r.by_itself and r.node not in hit for r in records
    )
    return "nodes were ended from outside" if foreign else "finished"


def failed_node(records: Sequence[h.Record]) -> str:
    """The first worker that ended by itself with an exit code other than 0, or nothing."""
    ends = (r for r in records if isinstance(r, h.NodeGone))
    return next((r.node for r in ends if r.by_itself and r.code), "")
