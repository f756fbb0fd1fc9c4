"""The weights that a job ends with are those of undisturbed runs."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot.oracles.comparison import Difference
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "checkpoint"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail when the final checkpoint cannot be read or holds other weights than it may."""
    final = evidence.trainer.final
    if final is None:
        return
    if evidence.stop is None or evidence.stop.reason != "finished":
        reason = evidence.stop.reason if evidence.stop else "no end was recorded"
        yield _finding(Outcome.UNKNOWN, f"the job did not end by itself ({reason})")
        return
    compared = evidence.final
    if compared is None:
        yield _finding(Outcome.UNKNOWN, "the final checkpoint was not looked at")
    elif compared.problem:
        yield _finding(Outcome.FAIL, f"{compared.checkpoint} is no checkpoint: {compared.problem}")
    elif compared.twin_problem or compared.difference is None:
        problem = compared.twin_problem or "it is missing"
        yield _finding(Outcome.UNKNOWN, f"the twin's {compared.checkpoint}: {problem}")
    else:
        yield from _compared(evidence, compared.checkpoint, compared.difference)


def _compared(evidence: Evidence, name: str, found: Difference) -> Iterator[Finding]:
    assert evidence.trainer.final is not None
    promised, within = evidence.promises.exact, evidence.trainer.final.within
    other = (*found.only_here, *found.only_there)
    if promised == "any-world" or (promised == "same-world" and _world_kept(evidence)):
        wrong = (*other, *found.unequal)
        if wrong and not evidence.twins_agree:
            yield _finding(
                Outcome.UNKNOWN,
                f"two undisturbed runs leave different weights in {name}: this trainer is not "
                "exact here",
            )
            return
        yield _finding(
            Outcome.FAIL if wrong else Outcome.PASS,
            f"{wrong[0]} in {name} is not the twin's; {len(wrong)} of {found.arrays} arrays differ"
            if wrong
            else f"all {found.arrays} arrays in {name} are the twin's, bit for bit",
            measured=len(wrong),
            bound=0,
            unit="arrays",
        )
    elif within is None:
        return
    elif found.distance is None:
        yield _finding(
            Outcome.FAIL, f"{name} and the twin's cannot be compared: {other[0]} differs"
        )
    else:
        yield _finding(
            Outcome.FAIL if not found.distance <= within else Outcome.PASS,
            f"weights in {name} are {found.distance:.2%} off the twin's",
            measured=100 * found.distance,
            bound=100 * within,
            unit="%",
        )


def _world_kept(evidence: Evidence) -> bool:
    """Whether every step of the lineage was made by as many ranks as in the twin."""
    worlds = {commit.world for commit in evidence.lineage.commits.values()}
    twin = {commit.world for commit in evidence.twin_lineage.commits.values()}
    return len(worlds | twin) == 1


def _finding(
    outcome: Outcome,
    message: str,
    *,
    measured: float | None = None,
    bound: float | None = None,
    unit: str = "",
) -> Finding:
    return Finding(
        oracle=NAME, outcome=outcome, message=message, measured=measured, bound=bound, unit=unit
    )
