"""The loss goes on as it does undisturbed, for a trainer that promises no exactness.

Losses are averaged over blocks of a twentieth of the lineage, five steps at least, so that noise of
single steps does not decide. The blocks from the first fault on are compared with the mean of the
twins; what the twins differ from each other widens the bound, four standard deviations of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, variance

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.lineage import Lineage
from chaosspot.verdict import Finding, Outcome

NAME = "loss"
TWINS = 3  # fewer say little about their spread

_BLOCKS = 20
_BLOCK_STEPS = 5
_SIGMAS = 4.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    first: int
    last: int
    run: float
    twins: tuple[float, ...]

    @property
    def centre(self) -> float:
        return fmean(self.twins)

    @property
    def off(self) -> float:
        """How far the run is off the twins' mean, as a share of it."""
        return (self.run - self.centre) / abs(self.centre)


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when a block's loss is further from the twins' mean than promised and their spread."""
    within = evidence.promises.loss_within
    if within is None:
        return
    if len(evidence.twins) < TWINS:
        yield _unknown(f"{len(evidence.twins)} undisturbed runs to compare with, not {TWINS}")
        return
    run = _losses(evidence.lineage)
    twins = [_losses(Lineage(twin)) for twin in evidence.twins]
    if not run or not all(twins):
        yield _unknown("no loss was reported" + ("" if not run else " by an undisturbed run"))
        return
    effects = [v.first_effect_t for v in evidence.faults if v.first_effect_t is not None]
    begin = min(effects, default=0.0)
    after = {step for step, commit in evidence.lineage.commits.items() if commit.t >= begin}
    shared = run.keys() & after
    for twin in twins:
        shared &= twin.keys()
    blocks = list(_blocks(sorted(shared), run, twins))
    silent = len(after - run.keys())
    if not blocks or silent > len(after) / 2:
        yield _unknown(
            f"too few losses to compare after the first fault: {len(shared)} of {len(after)} steps"
        )
        return
    spread = math.sqrt(fmean(variance(b.twins) / b.centre**2 for b in blocks))
    bound = within + _SIGMAS * spread
    worst = max(blocks, key=lambda block: abs(block.off))
    side = "above" if worst.off > 0 else "below"
    yield Finding(
        oracle=NAME,
        outcome=Outcome.FAIL if abs(worst.off) > bound else Outcome.PASS,
        message=f"loss of steps {worst.first} to {worst.last} is {abs(worst.off):.2%} {side} that "
        f"of {len(twins)} undisturbed runs, which differ by {spread:.2%}",
        bound=100 * bound,
        measured=100 * abs(worst.off),
        unit="%",
        evidence=tuple(evidence.lineage.commits[step].seq for step in (worst.first, worst.last)),
    )


def _losses(lineage: Lineage) -> dict[int, float]:
    """Loss by step of the lineage, the mean of what the ranks reported."""
    found: dict[int, float] = {}
    for step, commit in lineage.commits.items():
        told = _told(lineage, commit)
        if told:
            found[step] = fmean(told)
    return found


def _told(lineage: Lineage, commit: h.Commit) -> list[float]:
    losses = [c.loss for c in lineage.attempt_of(commit).commits]
    return [loss for loss in losses if loss is not None and math.isfinite(loss)]


def _blocks(
    steps: list[int], run: Mapping[int, float], twins: list[dict[int, float]]
) -> Iterator[_Block]:
    size = max(_BLOCK_STEPS, len(steps) // _BLOCKS)
    for start in range(0, len(steps) - size + 1, size):
        block = steps[start : start + size]
        means = tuple(fmean(twin[step] for step in block) for twin in twins)
        if fmean(means) != 0.0:
            yield _Block(
                first=block[0], last=block[-1], run=fmean(run[s] for s in block), twins=means
            )


def _unknown(message: str) -> Finding:
    return Finding(oracle=NAME, outcome=Outcome.UNKNOWN, message=message)
