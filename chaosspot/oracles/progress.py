"""Training goes on after every loss."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.episodes import Episode
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "progress"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when no step begun after a loss was committed, when training never got beyond the step
    it had reached before, or when it stopped later for good; unknown when it never ran."""
    if not evidence.commits:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message="no commit was ever reported: is progress read the way the trainer reports it?",
        )
        return
    losses = evidence.episodes
    if not losses:
        steps = len({c.step for c in evidence.commits})
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"{count(steps, 'step')} committed without a loss",
            measured=steps,
            unit="steps",
            evidence=(evidence.commits[-1].seq,),
        )
    for loss in losses:
        yield _after(loss, evidence)
    yield from _stopped(evidence)


def _stopped(evidence: Evidence) -> Iterator[Finding]:
    """Training came back from every loss, and then no commit came in the time the trainer allows
    itself (``timeouts.stall_s``), though there were workers enough."""
    losses, stop = evidence.episodes, evidence.stop
    stalled = stop is not None and stop.reason == "stall timeout"
    if not losses or not stalled or any(loss.recovered is None for loss in losses):
        return
    if len(evidence.able_workers(evidence.end_t)) < evidence.trainer.min_nodes:
        return
    last = evidence.commits[-1]
    yield Finding(
        oracle=NAME,
        outcome=Outcome.FAIL,
        message=(
            f"step {last.step} is the last, committed {evidence.end_t - last.t:.1f} s before the "
            "end: training had come back, and stopped"
        ),
        bound=evidence.trainer.timeouts.stall_s,
        measured=evidence.end_t - last.t,
        unit="s",
        fault=losses[-1].faults[-1],
        evidence=(last.seq,),
    )


def _after(loss: Episode, evidence: Evidence) -> Finding:
    def finding(
        outcome: Outcome, message: str, *seqs: int, waited_s: float | None = None
    ) -> Finding:
        return Finding(
            oracle=NAME,
            outcome=outcome,
            message=message,
            measured=waited_s,
            unit="s" if waited_s is not None else "",
            fault=loss.faults[0],
            evidence=seqs,
        )

    reason = evidence.stop.reason if evidence.stop else "interrupted"
    if loss.start_t is None:
        message = f"no capacity came back for the {count(loss.survivors, 'worker')} left"
        return finding(Outcome.UNKNOWN, message)
    if loss.recovered is None:
        waited_s = evidence.end_t - loss.start_t
        if reason == "interrupted":
            message = f"interrupted {waited_s:.1f} s after the loss, before any new commit"
            return finding(Outcome.UNKNOWN, message, waited_s=waited_s)
        last = [c.seq for c in evidence.commits if c.t <= loss.effect_t][-1:]
        message = (
            f"no step begun after the loss was committed in {waited_s:.1f} s; "
            f"the last committed step before it is {loss.highest_step}"
        )
        return finding(Outcome.FAIL, message, *last, waited_s=waited_s)
    if loss.caught_up is None:
        last_commit = evidence.commits[-1]
        message = (
            f"step {last_commit.step} is the last, committed "
            f"{evidence.end_t - last_commit.t:.1f} s before the end: training never passed "
            f"step {loss.highest_step}, which it had reached before the loss"
        )
        stuck = reason in ("decided", "stall timeout", "exited")
        return finding(Outcome.FAIL if stuck else Outcome.UNKNOWN, message, last_commit.seq)
    message = f"step {loss.recovered.step} was begun and committed after the loss"
    return finding(Outcome.PASS, message, loss.recovered.seq)
