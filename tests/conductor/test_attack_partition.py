"""A job cut in two, with the coordinator on one side: what the history and the store have of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from docked import NEEDS_DAEMON, left_of

from chaosspot import Verdict
from chaosspot import history as h
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import ClusterSpec, Group, Partition, Schedule, Target, Trigger
from chaosspot.verdict import Outcome

pytestmark = [*NEEDS_DAEMON, pytest.mark.soak, pytest.mark.timeout(900)]

INSIDE, OUTSIDE = "node-0", "node-1"  # with the coordinator, and without
CUT = Schedule(
    cluster=ClusterSpec(store="s3", group=(Group(count=2, zones=("a", "b")),)),
    fault=(Partition(on=Trigger(at_step=8), target=Target(zone="b"), off="rest", duration_s=45.0),),
)


def step_of(key: str) -> int:
    found = re.search(r"step-0*(\d+)", key)
    assert found is not None, key
    return int(found[1])


def of(records: Iterable[h.Record], kind: type[h.Record], node: str = "") -> list[h.Record]:
    return [r for r in records if isinstance(r, kind) and node in ("", r.node)]


def test_only_the_coordinators_side_goes_on_and_the_other_comes_back(
    attack: Callable[..., Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(home))
    verdict = attack(schedule=CUT, trainer="reference", cluster="containers")
    assert verdict.outcome is Outcome.PASS, verdict.findings
    assert left_of(home) == []

    records = h.read(Path(verdict.run) / "history.jsonl")
    lineage = Lineage(records)
    (cut,) = [r for r in records if isinstance(r, h.FaultEffect) and r.what == "cut-off"]
    (healed,) = of(records, h.FaultHealed)
    assert cut.node == OUTSIDE

    def while_cut(kind: type[h.Record], node: str) -> list[h.Record]:
        return [r for r in of(records, kind, node) if cut.t < r.t < healed.t]

    # The side with the coordinator goes on, alone.
    alone = [c for c in while_cut(h.Commit, INSIDE) if c.world == 1]
    assert len(alone) >= 3
    together = max(
        a.step
        for a in lineage.attempts
        if a.commits and {c.node for c in a.commits} == {INSIDE, OUTSIDE} and a.t < cut.t
    )
    assert min(c.step for c in alone) == together + 1

    # The other side commits nothing by itself: at most what both had begun before the cut.
    for commit in while_cut(h.Commit, OUTSIDE):
        assert (commit.step, commit.world) == (together, 2)
        assert commit.digest == lineage.commits[together].digest
    others = [
        commit
        for commit in lineage.commits.values()
        if cut.t < commit.t < healed.t and lineage.attempt_of(commit).t > cut.t
    ]
    assert others
    for commit in others:
        assert {r.node for r in lineage.attempt_of(commit).commits} == {INSIDE}

    # It reaches the store all the time, and what it puts there is of what both had.
    apart = {c.step for c in of(records, h.Commit, INSIDE) if c.world == 1}
    assert while_cut(h.StorePut, INSIDE), "the side that went on saved nothing"
    assert not apart & {step_of(put.key) for put in of(records, h.StorePut, OUTSIDE)}
    assert all(step_of(put.key) <= together for put in while_cut(h.StorePut, OUTSIDE))
    assert all(snapshot.step <= together for snapshot in while_cut(h.Snapshot, OUTSIDE))

    # It comes back, from what the others have, and every state is the undisturbed twin's.
    back = [c for c in of(records, h.Commit, OUTSIDE) if c.t > healed.t]
    assert back
    assert min(c.step for c in back) > max(apart)
    twin = Lineage(h.read(Path(verdict.run) / "twin.jsonl")).commits
    assert {step: c.digest for step, c in lineage.commits.items()} == {
        step: twin[step].digest for step in lineage.commits
    }
    assert all(c.digest == twin[c.step].digest and c.world == 2 for c in back)
