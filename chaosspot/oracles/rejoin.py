"""Whoever is new, or was paused, takes part again."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from chaosspot import history as h
from chaosspot.oracles.evidence import Evidence
from chaosspot.verdict import Finding, Outcome

NAME = "rejoin"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Only for trainers that promise it: fail when such a node did not commit within the time the
    description allows a start, or ended with an error; unknown when the run ended before.
    Nothing for one that another fault took in that time."""
    if not evidence.promises.rejoins:
        return
    for since, why in returns(evidence):
        if not _taken_again(evidence, since):
            yield _finding(evidence, since, why)


def returns(evidence: Evidence) -> Iterator[tuple[h.Record, str]]:
    """The moments from which a node is to take part, and what brought it."""
    first = evidence.schedule.cluster.nodes()
    for up in evidence.of(h.NodeUp):
        new = up.replaces is not None or up.node not in {node.name for node in first}
        if up.role == "worker" and new:
            yield up, f"in place of {up.replaces}" if up.replaces else "as one more"
    for view in evidence.faults:
        if view.impairs and view.healed is not None:
            for node in sorted(view.hit.keys() & evidence.live_workers(view.healed.t)):
                yield replace(view.healed, node=node), f"after the {view.spec.kind}"


def came_back(evidence: Evidence, since: h.Record) -> h.Commit | None:
    """The node's first commit after that moment."""
    return next((c for c in evidence.commits if c.node == since.node and c.t > since.t), None)


def _taken_again(evidence: Evidence, since: h.Record) -> bool:
    """Whether a fault took the node back before it had to take part: that says nothing of it."""
    taken_t = next(
        (
            effect.t
            for view in evidence.faults
            for effect in (view.seen("gone").get(since.node),)
            if effect is not None and effect.t > since.t
        ),
        None,
    )
    if taken_t is None or taken_t - since.t > evidence.trainer.timeouts.start_s:
        return False
    commit = came_back(evidence, since)
    return commit is None or commit.t > taken_t


def _finding(evidence: Evidence, since: h.Record, why: str) -> Finding:
    bound_s = evidence.trainer.timeouts.start_s
    commit = came_back(evidence, since)
    end = next((g for g in evidence.of(h.NodeGone) if g.node == since.node and g.t > since.t), None)
    until_t = commit.t if commit else end.t if end else evidence.end_t
    took_s = until_t - since.t
    if commit is not None:
        outcome = Outcome.PASS if took_s <= bound_s else Outcome.FAIL
        message = f"{since.node} took part {took_s:.1f} s after it came {why}"
    elif end is not None and not end.by_itself:
        outcome = Outcome.UNKNOWN
        message = f"{since.node} came {why} and was taken away again"
    elif end is not None:
        outcome = Outcome.FAIL
        message = f"{since.node} came {why} and ended with code {end.code}, without a commit"
    else:
        outcome = Outcome.FAIL if took_s > bound_s else Outcome.UNKNOWN
        message = f"{since.node} came {why} and did not commit in {took_s:.1f} s"
    return Finding(
        oracle=NAME,
        outcome=outcome,
        message=message,
        bound=bound_s,
        measured=took_s,
        unit="s",
        evidence=(since.seq, *((commit.seq,) if commit else ())),
    )
