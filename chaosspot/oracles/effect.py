"""Every planned fault was seen to bite; otherwise the run proves nothing about it."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.evidence import Evidence, FaultView
from chaosspot.verdict import Finding, Outcome

NAME = "effect"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Unknown for a fault without effect on every node it was to hit; never fail. One whose draw
    took no node has done what it was to do, if another one of the run had an effect."""
    some = any(view.complete for view in evidence.faults)
    for view in evidence.faults:
        if some and view.missed is not None and view.missed.drawn:
            yield _none_drawn(view.index, view.spec.kind, view.missed.seq)
            continue
        reason = _why_not(view)
        hit = ", ".join(view.nodes)
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN if reason else Outcome.PASS,
            message=f"{view.spec.kind} {reason}" if reason else f"{view.spec.kind} hit {hit}",
            measured=len(set(view.nodes) & set(view.hit)),
            bound=len(view.nodes) or None,
            unit="nodes",
            fault=view.index,
            evidence=tuple(effect.seq for effect in view.effects),
        )


def _none_drawn(fault: int, kind: str, seq: int) -> Finding:
    return Finding(
        oracle=NAME,
        outcome=Outcome.PASS,
        message=f"{kind} hit no node, as drawn",
        measured=0,
        unit="nodes",
        fault=fault,
        evidence=(seq,),
    )


def _why_not(view: FaultView) -> str:
    if view.missed is not None:
        return f"did not act: {view.missed.reason}"
    if view.injected is None:
        return "did not act: the run ended before its trigger"
    if not view.complete:
        missing = sorted(set(view.nodes) - set(view.hit))
        return f"had no effect on {', '.join(missing) or 'any node'}"
    return ""
