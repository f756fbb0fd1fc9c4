"""How many workers there were, and when."""

from __future__ import annotations

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence

__all__ = ["nodes_over_time"]


def nodes_over_time(evidence: Evidence) -> list[tuple[float, int]]:
    """The number of live workers from each time on, in seconds since all of the first were up.

    The last entry is the end of the run.
    """
    counts: dict[float, int] = {}
    live: set[str] = set()
    for record in evidence.of(h.NodeUp, h.NodeGone):
        if isinstance(record, h.NodeUp) and record.role == "worker":
            live.add(record.node)
        elif record.node in evidence.workers:
            live.discard(record.node)
        else:
            continue
        if record.t > evidence.end_t and isinstance(record, h.NodeGone):
            break  # of those that the harness ends with the run
        counts[record.t] = len(live)
    if not counts:
        return []
    first = {node.name for node in evidence.schedule.cluster.nodes()}
    start_t = max((up.t for name, up in evidence.workers.items() if name in first), default=0.0)
    counts.setdefault(evidence.end_t, list(counts.values())[-1])
    return _merged([(max(0.0, round(t - start_t, 2)), count) for t, count in counts.items()])


def _merged(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Of those at one time the last; without those that say what the one before has said, but for
    the end."""
    merged = points[:1]
    for number, (t_s, count) in enumerate(points[1:], 1):
        if t_s == merged[-1][0]:
            merged[-1] = (t_s, count)
        elif count != merged[-1][1] or number == len(points) - 1:
            merged.append((t_s, count))
    return merged
