"""From a history to a verdict: pure functions, one oracle a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from chaosspot.oracles import (
    checkpoint,
    durability,
    effect,
    ending,
    equality,
    exits,
    gray,
    leaks,
    ledger,
    loss,
    membership,
    notice,
    progress,
    recovery,
    rejoin,
    reports,
    restarts,
    rework,
    snapshots,
)
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.figures import measure
from chaosspot.verdict import Finding, Outcome, conclude

__all__ = ["ORACLES", "Evidence", "judge"]

Oracle = Callable[[Evidence], Iterable[Finding]]

ORACLES: Mapping[str, Oracle] = {
    module.NAME: module.check
    for module in (
        ending,
        effect,
        progress,
        recovery,
        rejoin,
        notice,
        restarts,
        exits,
        rework,
        ledger,
        equality,
        loss,
        checkpoint,
        durability,
        snapshots,
        membership,
        gray,
        leaks,
        reports,
    )
}


def judge(
    evidence: Evidence, oracles: Mapping[str, Oracle] = ORACLES
) -> tuple[Outcome, tuple[Finding, ...], dict[str, Any]]:
    """Outcome, findings and figures. An oracle that crashes gives unknown, never pass."""
    findings: list[Finding] = []
    for name, oracle in oracles.items():
        try:
            findings.extend(oracle(evidence))
        except Exception as error:  # noqa: BLE001 - whatever it was, the oracle has no opinion
            message = f"the oracle crashed: {type(error).__name__}: {error}"
            findings.append(Finding(oracle=name, outcome=Outcome.UNKNOWN, message=message))
    outcome, explained = conclude(findings)
    return outcome, explained, measure(evidence)
