"""Losses in bulk as a trace shows them, and what two models that were fitted to it make of them.

A beta-binomial meets the mean and the variance of all ticks and overstates small losses; a common
shock meets how often any and how often all nodes go, where a trace is like that at all.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np

from chaosspot.economics.correlation import fit_beta_binomial
from chaosspot.economics.risks import Risk, risk_of
from chaosspot.economics.shocks import fit_common_shock
from chaosspot.traces.trace import Trace

__all__ = ["Seen", "seen_in"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How often any, half or more, and all of ``nodes`` nodes went within a tick.

    ``ticks``: how many began with all nodes. ``risks``: the trace itself first, then the models;
    none where there are no such ticks, and no common shock where all nodes went together more
    seldom than independent ones would.
    """

    nodes: int
    ticks: int
    risks: tuple[Risk, ...]


def seen_in(trace: Trace, *, tick_s: float) -> Seen:
    """What ``trace`` shows within ticks of ``tick_s`` seconds.

    Raises:
        TraceError: the trace says nothing about losses.
    """
    ticks = trace.ticks(tick_s)
    nodes, half = trace.most_nodes, max(1, trace.most_nodes // 2)
    full = ticks.from_full(nodes)
    number = len(full.lost)
    if not number:
        return Seen(nodes=nodes, ticks=0, risks=())
    itself = risk_of("as seen", 1, half, np.bincount(full.lost, minlength=nodes + 1) / number)
    risks = [itself, risk_of("beta-binomial", 1, half, fit_beta_binomial(ticks).lost(nodes))]
    with suppress(ValueError):
        shock = fit_common_shock(nodes=nodes, p_any=itself.p_any, p_all=itself.p_all)
        risks.append(risk_of("common shock", 1, half, shock.lost(nodes)))
    return Seen(nodes=nodes, ticks=number, risks=tuple(risks))
