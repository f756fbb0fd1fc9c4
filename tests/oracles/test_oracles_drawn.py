"""All oracles on drawn histories: none crashes, and nothing hangs on how a run is told."""

from __future__ import annotations

from typing import Any

from histories import KILL, NOTICE, Story, ended, loss, outcome, undisturbed
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot.oracles import ORACLES, judge
from chaosspot.verdict import Finding, Outcome, conclude

NODES = ("node-0", "node-1")  # of the cluster that is planned; those that come have other names
OTHERS = {"node-0": "node-1", "node-1": "node-0", "node-2": "zz", "node-3": "a", "node-4": "m"}
PROMISES = {
    "exact": "any-world",
    "samples": "exactly-once",
    "snapshot_every_steps": 5,
    "drains_on_notice": True,
    "rejoins": True,
    "recovery_s": 3.0,
    "straggler_factor": 4.0,
    "stuck_s": 5.0,
}
DEEDS = st.sampled_from(
    (
        *("step", "step", "step", "torn step", "wrong digest", "twice"),
        *("kill", "notice", "save", "restore", "back", "exit", "come"),
    )
)


class Told:
    """A history that drawn deeds make, right or wrong; and the faults in it."""

    def __init__(self, deeds: list[str], gaps: list[float]) -> None:
        self.story = Story()
        self.faults: list[Any] = []
        self.live = list(NODES)
        self.step, self.generation, self.t, self.came = 0, 1, 0.0, len(NODES)
        self.story.up(0.0, *NODES)
        for deed, gap_s in zip(deeds, gaps, strict=True):
            self.t += gap_s
            if self.live:
                getattr(self, "_" + deed.replace(" ", "_"))()
        self.story.stop(self.t + 1.0)

    def _step(self, **wrong: Any) -> None:
        self.story.begin(self.t, self.step + 1, *self.live, generation=self.generation)
        self.t += 0.1
        self.step += 1
        given = {"generation": self.generation, **wrong}
        self.story.commit(self.t, self.step, *self.live, **given)

    def _torn_step(self) -> None:
        self.story.begin(self.t, self.step + 1, *self.live, generation=self.generation)
        self.generation += 1

    def _wrong_digest(self) -> None:
        self._step(digest="wrong")

    def _twice(self) -> None:
        self._step(samples=(1, 2))

    def _kill(self) -> None:
        self.story.kill(self.t, self.live.pop(0), fault=len(self.faults))
        self.faults.append(KILL)
        self.generation += 1

    def _notice(self) -> None:
        node = self.live.pop()
        self.story.notice(self.t, node, lead_s=2.0, gone_t=self.t + 0.5, fault=len(self.faults))
        self.t += 0.5
        self.faults.append(NOTICE)
        self.generation += 1

    def _save(self) -> None:
        self.story.saved(self.t, self.step, self.live[0])

    def _restore(self) -> None:
        self.story.restored(self.t, self.step, self.live[-1])

    def _back(self) -> None:
        self.step = max(0, self.step - 3)
        self.generation += 1

    def _exit(self) -> None:
        self.story.gone(self.t, self.live.pop(), by_itself=True, code=1)
        self.generation += 1

    def _come(self) -> None:
        if self.came < len(OTHERS):
            self.live.append(f"node-{self.came}")
            self.story.up(self.t, self.live[-1], replaces="node-0")
            self.came += 1


gaps = st.floats(0.01, 2.0)
told = st.lists(st.tuples(DEEDS, gaps), min_size=1, max_size=14).map(
    lambda both: Told([deed for deed, _ in both], [gap_s for _, gap_s in both])
)


def judged(story: Story, faults: list[Any]) -> list[tuple[Any, ...]]:
    """What every oracle says, but for names."""
    evidence = story.evidence(*faults, twin=undisturbed(20), **PROMISES)
    _, findings, _ = judge(evidence)
    assert [f.message for f in findings if "crashed" in f.message] == []
    return sorted(
        (
            f.oracle,
            f.outcome,
            f.fault if f.fault is not None else -1,
            round(f.measured if f.measured is not None else -1.0, 3),
            round(f.bound if f.bound is not None else -1.0, 3),
        )
        for f in findings
    )


def retold(story: Story, *, later_s: float, names: dict[str, str]) -> Story:
    """The same run at another time, with nodes of other names."""
    other = Story()
    for record in story.records:
        changes: dict[str, Any] = {
            "t": record.t + later_s,
            "t_seen": record.t_seen + later_s,
            "wall": record.wall + later_s,
            "node": names.get(record.node, record.node),
            "pid": record.pid + 7,
        }
        if isinstance(record, h.FaultInjected):
            changes["nodes"] = tuple(names[node] for node in record.nodes)
        if isinstance(record, h.FaultEffect) and record.deadline_wall_s is not None:
            changes["deadline_wall_s"] = record.deadline_wall_s + later_s
        if isinstance(record, h.NodeUp) and record.replaces is not None:
            changes["replaces"] = names[record.replaces]
        other.records.append(replace(record, **changes))
    return other


@given(told, st.integers(0, 1000))
def test_what_is_the_same_but_for_names_and_times_is_judged_the_same(
    run: Told, later_s: int
) -> None:
    other = retold(run.story, later_s=float(later_s), names=OTHERS)
    assert judged(other, run.faults) == judged(run.story, run.faults)


@given(told, st.integers(0, 60))
def test_no_oracle_crashes_on_a_history_that_ends_anywhere(run: Told, length: int) -> None:
    cut = Story()
    cut.records = run.story.records[:length]
    judged(ended(cut, 1000.0, "interrupted"), run.faults)


@given(told)
def test_steps_that_go_wrong_are_never_passed_and_those_that_do_not_never_fail(run: Told) -> None:
    evidence = run.story.evidence(*run.faults, twin=undisturbed(20), **PROMISES)
    chain = list(evidence.lineage.commits.values())
    wrong = any(commit.digest == "wrong" for commit in chain)
    twice = any(commit.samples != (1, 1) for commit in chain)
    if wrong:
        assert outcome("equality", evidence) is Outcome.FAIL
    if chain:
        assert (outcome("ledger", evidence) is Outcome.FAIL) == twice


@given(told)
def test_the_lineage_has_one_commit_a_step_and_all_else_is_thrown_away_later(run: Told) -> None:
    lineage = run.story.evidence(*run.faults).lineage
    kept = {id(lineage.attempt_of(commit)) for commit in lineage.commits.values()}
    assert len(kept) == len(lineage.commits)
    assert list(lineage.commits) == sorted(lineage.commits)
    for attempt in lineage.abandoned:
        assert id(attempt) not in kept
        assert lineage.thrown_t(attempt) >= attempt.t


@given(st.floats(0.2, 20.0), st.floats(0.2, 20.0))
def test_a_recovery_fails_beyond_its_bound_and_only_there(took_s: float, bound_s: float) -> None:
    evidence = ended(loss(recovery_s=took_s)).evidence(KILL, recovery_s=bound_s)
    (finding,) = ORACLES["recovery"](evidence)
    assert finding.measured is not None
    assert abs(finding.measured - took_s) < 1e-6
    assert (finding.outcome is Outcome.FAIL) == (finding.measured > bound_s)


@given(st.floats(1.0, 60.0), st.floats(0.1, 90.0), st.booleans())
def test_a_notice_is_kept_by_who_leaves_by_itself_in_time_and_by_nobody_else(
    lead_s: float, took_s: float, by_itself: bool
) -> None:
    story = undisturbed(5)
    story.notice(5.2, "node-1", lead_s=lead_s, gone_t=5.2 + took_s, by_itself=by_itself)
    story.step(100.0, 6, "node-0", generation=2)
    evidence = ended(story, 101.0).evidence(replace(NOTICE, lead_s=lead_s), drains_on_notice=True)
    (finding,) = ORACLES["notice"](evidence)
    assert finding.measured is not None
    in_time = finding.measured <= (finding.bound or 0.0)
    assert (finding.outcome is Outcome.PASS) == (by_itself and in_time)


findings = st.lists(
    st.builds(
        Finding,
        oracle=st.sampled_from(list(ORACLES)),
        outcome=st.sampled_from(list(Outcome)),
        message=st.just("x"),
    )
)


@given(findings)
def test_a_verdict_is_its_worst_finding_and_no_cause_is_made_up(listed: list[Finding]) -> None:
    worst, explained = conclude(listed)
    expected = max((f.outcome for f in listed), key=lambda o: o.weight, default=Outcome.UNKNOWN)
    assert worst is expected
    assert [(f.oracle, f.outcome) for f in explained] == [(f.oracle, f.outcome) for f in listed]
    failed = {f.oracle for f in listed if f.outcome is Outcome.FAIL}
    assert all(set(f.caused_by) <= failed - {f.oracle} for f in explained)
