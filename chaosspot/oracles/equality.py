"""The weights are right: at every step of the lineage the state is the twin's, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.oracles.lineage import Lineage
from chaosspot.verdict import Finding, Outcome
from chaosspot.words import count

NAME = "equality"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fail on the first step whose state differs from the twin's, from another rank's, or does
    not descend from the step before; unknown where there is nothing to compare."""
    if evidence.promises.exact == "none":
        return
    lineage = evidence.lineage
    yield from _ranks_differ(lineage)
    yield from _broken(lineage)
    yield from _twin_differs(evidence, lineage)


def _ranks_differ(lineage: Lineage) -> Iterator[Finding]:
    for commit in lineage.commits.values():
        attempt = lineage.attempt_of(commit)
        digests = {c.digest: c for c in attempt.commits if c.digest is not None}
        if len(digests) > 1:
            named = ", ".join(f"{c.node} {digest}" for digest, c in sorted(digests.items()))
            yield _fail(f"ranks differ after step {commit.step}: {named}", *digests.values())
            return


def _broken(lineage: Lineage) -> Iterator[Finding]:
    for commit in lineage.breaks[:1]:
        before = lineage.commits[commit.step - 1]
        yield _fail(
            f"step {commit.step} started from state {commit.parent}, "
            f"but step {commit.step - 1} left {before.digest}",
            before,
            commit,
        )


def _twin_differs(evidence: Evidence, lineage: Lineage) -> Iterator[Finding]:
    chain = {s: c for s, c in lineage.commits.items() if c.digest is not None}
    if not chain and evidence.trainer.final is not None:
        return  # what it ends with is compared instead
    if not chain:
        yield _unknown("no digests were reported")
        return
    if evidence.twin is None:
        yield _unknown("there is no undisturbed twin to compare with")
        return
    twin = evidence.twin_lineage.commits
    if evidence.promises.exact == "same-world":
        chain = {s: c for s, c in chain.items() if s in twin and twin[s].world == c.world}
    silent = sorted({*lineage.holes, *(s for s, c in lineage.commits.items() if c.digest is None)})
    missing = [s for s in chain if s not in twin or twin[s].digest is None]
    differing = [s for s in chain if s not in missing and twin[s].digest != chain[s].digest]
    if differing and not evidence.twins_agree:
        yield _unknown(
            "two undisturbed runs differ from each other: this trainer is not exact here"
        )
    elif differing:
        step = differing[0]
        yield _fail(
            f"state after step {step} is {chain[step].digest}, the twin's is {twin[step].digest}; "
            f"{len(differing)} of {len(chain)} steps differ",
            chain[step],
        )
    elif silent:
        yield _unknown(f"no digest was reported after step {silent[0]} ({len(silent)} such steps)")
    elif missing:
        yield _unknown(f"the twin has no digest for step {missing[0]} ({len(missing)} such steps)")
    else:
        yield Finding(
            oracle=NAME,
            outcome=Outcome.PASS,
            message=f"state equal to the twin's after each of {count(len(chain), 'step')}",
            measured=len(chain),
            unit="steps",
            evidence=(chain[max(chain)].seq,) if chain else (),
        )


def _fail(message: str, *commits: h.Commit) -> Finding:
    return Finding(
        oracle=NAME,
        outcome=Outcome.FAIL,
        message=message,
        evidence=tuple(commit.seq for commit in commits),
    )


def _unknown(message: str) -> Finding:
    return Finding(oracle=NAME, outcome=Outcome.UNKNOWN, message=message)
