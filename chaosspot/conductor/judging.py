"""The verdict of a run, from its files alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chaosspot import history as h
from chaosspot.conductor import rundir
from chaosspot.oracles import ORACLES, Evidence, judge
from chaosspot.verdict import Finding, Outcome, Verdict

__all__ = ["GUARDIAN_DIED", "judge_run", "verdict_of", "write_verdict"]

GUARDIAN_DIED = "guardian died"  # why a run stopped: what it shows is the harness's doing


def judge_run(run: Path) -> Verdict:
    """Judge a run from its files alone, and write ``verdict.json``.

    Raises:
        RunError: the files are missing or damaged.
        OSError: the verdict cannot be written; names the path.
    """
    verdict = verdict_of(run)
    write_verdict(run, verdict)
    return verdict


def verdict_of(run: Path) -> Verdict:
    """Judge a run from its files alone; nothing is written.

    Raises:
        RunError: the files are missing or damaged.
    """
    evidence = rundir.evidence_of(run)
    # First, because it explains what the others miss.
    outcome, findings, measured = judge(evidence, {"twin": _twin, **ORACLES})
    if death := next((s for s in evidence.of(h.RunStop) if s.reason == GUARDIAN_DIED), None):
        # Whatever else was seen may be what the harness itself did when it lost its guardian.
        outcome, findings = Outcome.UNKNOWN, (_unknown("ending", death.log, death.seq),)
    start = next(evidence.of(h.RunStart), None)
    return Verdict(
        outcome=outcome,
        schedule=start.schedule if start else "",
        trainer=evidence.trainer.name,
        seed=evidence.schedule.seed or 0,
        findings=findings,
        measured=measured,
        run=str(run),
        replay=f"chaosspot replay {shlex.quote(str(run))}",
    )


def write_verdict(run: Path, verdict: Verdict) -> None:
    """Write ``verdict.json``.

    Raises:
        OSError: it cannot be written; names the path.
    """
    rundir.write(run / "verdict.json", msgspec.json.format(msgspec.json.encode(verdict)))


def _twin(evidence: Evidence) -> Iterator[Finding]:
    """Unknown when the twin did not get as far as the run: says what became of it."""
    if evidence.twin is None:
        return
    twin = Evidence(history=evidence.twin, schedule=evidence.schedule, trainer=evidence.trainer)
    reached = max(evidence.twin_lineage.commits, default=0)
    wanted = max(evidence.lineage.commits, default=0)
    why = next((s.reason for s in reversed(list(twin.of(h.RunStop)))), "its history has no end")
    if reached >= wanted or why == "steps":
        return
    ends = [
        f"{gone.node} exited with code {gone.code}"
        if gone.by_itself
        else f"{gone.node} was ended from outside"
        for gone in twin.of(h.NodeGone)
        if gone.code or not gone.by_itself
    ]
    text = f"the undisturbed twin ended at step {reached} of {wanted}: {why}"
    yield _unknown("twin", "; ".join([text, *ends[:3]]))


def _unknown(oracle: str, message: str, *evidence: int) -> Finding:
    return Finding(oracle=oracle, outcome=Outcome.UNKNOWN, message=message, evidence=evidence)
