"""What is measured and shown whether or not it was promised."""

from __future__ import annotations

from typing import Any

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.goodput import CAUSES, billed_node_s, split_node_s
from chaosspot.oracles.population import nodes_over_time

__all__ = ["measure"]


def measure(evidence: Evidence) -> dict[str, Any]:
    """Figures of an attack: seconds, steps, node-seconds; None where nothing tells.

    ``nodes_over_time`` are pairs: from so many seconds on, so many workers.
    ``goodput`` is node-seconds spent in attempts of the lineage over node-seconds billed; the
    ``..._node_s`` say where the rest went (:mod:`chaosspot.oracles.goodput`).
    """
    losses = evidence.episodes
    lineage = evidence.lineage
    recoveries = [e.recovery_s for e in losses if e.recovery_s is not None]
    catch_ups = [e.catch_up_s for e in losses if e.catch_up_s is not None]
    billed = billed_node_s(evidence)
    split = split_node_s(evidence) or dict.fromkeys(CAUSES)
    useful = split["useful"]
    return {
        "steps": len(lineage.commits),
        "recovery_s": max(recoveries, default=None),
        "catch_up_s": max(catch_ups, default=None),
        "rework_steps": len(lineage.abandoned),
        "billed_node_s": round(billed, 3),
        **{f"{cause}_node_s": _rounded(spent) for cause, spent in split.items()},
        "goodput": round(useful / billed, 4) if useful is not None and billed else None,
        "nodes_over_time": nodes_over_time(evidence),
        "checkpoint_distance": evidence.final.difference.distance
        if evidence.final and evidence.final.difference
        else None,
        "restored": {
            source: sum(1 for r in evidence.of(h.Restore) if r.source == source)
            for source in ("peer", "local", "store")
        },
        "soft_errors": sum(1 for _ in evidence.of(h.SoftError)),
    }


def _rounded(node_s: float | None) -> float | None:
    return None if node_s is None else round(node_s, 3)
