"""Training goes on after every loss."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.episodes import episodes
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "progress"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when no step begun after a loss was committed; unknown when training never ran."""
    if not evidence.commits:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.UNKNOWN,
            message="no commit was ever reported: is progress read the way the trainer reports it?",
        )
        return
    losses = episodes(evidence)
    if not losses:
        steps = len({c.step for c in evidence.commits})
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"{steps} steps committed without a loss",
            measured=steps,
            unit="steps",
            evidence=(evidence.commits[-1].seq,),
        )
    for loss in losses:
        waited_s = evidence.end_t - (loss.effect_t if loss.start_t is None else loss.start_t)
        if loss.recovered is not None:
            yield Finding(
                oracle=NAME,
                outcome=Outcome.PASS,
                message=f"step {loss.recovered.step} was begun and committed after the loss",
                fault=loss.faults[0],
                evidence=(loss.recovered.seq,),
            )
        elif loss.start_t is None:
            yield Finding(
                oracle=NAME,
                outcome=Outcome.UNKNOWN,
                message=f"{loss.survivors} workers were left and no capacity came back",
                fault=loss.faults[0],
            )
        elif evidence.stop is not None and evidence.stop.reason == "interrupted":
            yield Finding(
                oracle=NAME,
                outcome=Outcome.UNKNOWN,
                message=f"interrupted {waited_s:.1f} s after the loss, before any new commit",
                fault=loss.faults[0],
            )
        else:
            last = [c.seq for c in evidence.commits if c.t <= loss.effect_t][-1:]
            yield Finding(
                oracle=NAME,
                outcome=Outcome.FAIL,
                message=(
                    f"no step begun after the loss was committed in {waited_s:.1f} s; "
                    f"the last committed step before it is {loss.highest_step}"
                ),
                measured=waited_s,
                unit="s",
                fault=loss.faults[0],
                evidence=tuple(last),
            )
