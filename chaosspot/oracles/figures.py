"""What is measured and shown whether or not it was promised."""

from __future__ import annotations

from typing import Any

from chaosspot import history as h
from chaosspot.oracles.episodes import episodes
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.lineage import Lineage

__all__ = ["measure"]


def measure(evidence: Evidence) -> dict[str, Any]:
    """Figures of an attack: seconds, steps, node-seconds; None where nothing tells.

    ``goodput`` is node-seconds spent in attempts of the lineage over node-seconds billed.
    """
    losses = episodes(evidence)
    lineage = Lineage(evidence.history)
    recoveries = [e.recovery_s for e in losses if e.recovery_s is not None]
    catch_ups = [e.catch_up_s for e in losses if e.catch_up_s is not None]
    billed = billed_node_s(evidence)
    useful = useful_node_s(lineage)
    return {
        "steps": len(lineage.commits),
        "recovery_s": max(recoveries, default=None),
        "catch_up_s": max(catch_ups, default=None),
        "rework_steps": len(lineage.abandoned),
        "billed_node_s": round(billed, 3),
        "useful_node_s": round(useful, 3),
        "goodput": round(useful / billed, 4) if billed else None,
        "restored": {
            source: sum(1 for r in evidence.of(h.Restore) if r.source == source)
            for source in ("peer", "local", "store")
        },
    }


def billed_node_s(evidence: Evidence) -> float:
    """Node-seconds of workers from start to gone, or to the end of the run."""
    total, up_t = 0.0, {}
    for record in evidence.history:
        if isinstance(record, h.NodeUp) and record.role == "worker":
            up_t[record.node] = record.t
        elif isinstance(record, h.NodeGone) and record.node in up_t:
            total += record.t - up_t.pop(record.node)
    return total + sum(max(0.0, evidence.end_t - t) for t in up_t.values())


def useful_node_s(lineage: Lineage) -> float:
    """Node-seconds from the first begin to the last commit of each attempt in the lineage."""
    total = 0.0
    for commit in lineage.commits.values():
        attempt = lineage.attempt_of(commit)
        ends = {c.node: c.t for c in attempt.commits}
        total += sum(max(0.0, ends[b.node] - b.t) for b in attempt.begins if b.node in ends)
    return total
