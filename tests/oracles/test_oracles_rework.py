"""What is repeated is owed to the fault that threw it away, also where one loss follows another."""

from __future__ import annotations

from typing import Any

import pytest
from histories import KILL, NOTICE, Story, ended, outcome, undisturbed
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot.misbehaviour import Closed
from chaosspot.oracles import ORACLES, Evidence
from chaosspot.schedule import Misbehave, Trigger
from chaosspot.verdict import Outcome

EVERY = 5  # steps between snapshots
REBOOT = replace(KILL, keep_flash=True, replace_after_s=0.1)


class Job:
    """A trainer of one process: it saves every fifth step, and restores what is newest."""

    def __init__(self) -> None:
        self.story = Story()
        self.t, self.step, self.saved, self.life = 1.0, 0, 0, 0
        self.faults: list[Any] = []
        self.story.up(0.5, "node-0")

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.begin()
            self.t += 0.1
            self.step += 1
            self.story.commit(self.t, self.step, "node-0", **self._life())
            if self.step % EVERY == 0:
                self.saved = self.step

    def begin(self) -> None:
        self.t += 0.1
        self.story.begin(self.t, self.step + 1, "node-0", **self._life())

    def kill(self, *, back: int = 0) -> None:
        """In the middle of a step. The machine reboots, and training resumes at the newest
        snapshot, or at one that is ``back`` older."""
        self.begin()
        self.end(replace(REBOOT), "kill")
        self.step = self.saved = max(0, self.saved - EVERY * back)

    def notice(self) -> None:
        """Between two steps; it saves and leaves, and comes back where it was."""
        fault = len(self.faults)
        published = {"fault": fault, "what": "published", "deadline_wall_s": 1_800_000_000.0}
        self.story.tell(h.FaultInjected, self.t, fault=fault, kind="notice", nodes=("node-0",))
        self.story.tell(h.FaultEffect, self.t, "node-0", **published)
        self.saved = self.step
        self.end(NOTICE, "notice", injected=True, by_itself=True)

    def end(
        self, fault: Any, kind: str, *, injected: bool = False, by_itself: bool = False
    ) -> None:
        number, self.t = len(self.faults), self.t + 0.05
        self.faults.append(fault)
        if not injected:
            self.story.tell(h.FaultInjected, self.t, fault=number, kind=kind, nodes=("node-0",))
        self.story.gone(self.t, "node-0", by_itself=by_itself)
        self.story.tell(h.FaultEffect, self.t, "node-0", fault=number, what="gone")
        self.story.tell(h.FaultHealed, self.t, fault=number)
        self.t += 0.1
        self.story.up(self.t, "node-0")
        self.life += 1

    def _life(self) -> dict[str, Any]:
        return {"generation": self.life + 1, "incarnation": self.life, "pid": self.life + 1}

    def evidence(self) -> Evidence:
        return ended(self.story, self.t + 1).evidence(
            *self.faults, snapshot_every_steps=EVERY, drains_on_notice=True
        )


def measured(evidence: Evidence) -> dict[int | None, float | None]:
    return {finding.fault: finding.measured for finding in ORACLES["rework"](evidence)}


def test_a_second_loss_is_not_charged_with_what_the_first_threw_away() -> None:
    """Killed in step 15, back at 10, killed in step 14: 5 and 4 steps are repeated, 9 by none."""
    job = Job()
    job.work(14)
    job.kill()
    job.work(3)
    job.kill()
    job.work(10)
    evidence = job.evidence()
    assert measured(evidence) == {0: 5, 1: 4}
    assert outcome("rework", evidence) is Outcome.PASS


def test_a_notice_is_not_charged_with_what_a_kill_before_it_threw_away() -> None:
    job = Job()
    job.work(14)
    job.kill()
    job.work(1)
    job.notice()
    job.work(10)
    evidence = job.evidence()
    assert measured(evidence) == {0: 5, 1: 0}
    assert outcome("notice", evidence) is Outcome.PASS


WORK = st.integers(0, 12)


@given(st.lists(st.tuples(WORK, st.booleans()), min_size=1, max_size=6))
def test_who_keeps_the_promise_never_fails_however_losses_follow(
    losses: list[tuple[int, bool]],
) -> None:
    job = Job()
    for steps, announced in losses:
        job.work(steps)
        job.notice() if announced else job.kill()
    job.work(40)
    evidence = job.evidence()
    findings = list(ORACLES["rework"](evidence))
    assert [f for f in findings if f.outcome is not Outcome.PASS] == []
    assert [f for f in ORACLES["notice"](evidence) if f.outcome is Outcome.FAIL] == []
    assert sum(f.measured or 0 for f in findings) == len(evidence.lineage.abandoned)


@given(st.lists(WORK, max_size=4), st.integers(10, 20), st.lists(WORK, max_size=3))
def test_who_goes_two_snapshots_back_fails_however_losses_follow(
    before: list[int], steps: int, after: list[int]
) -> None:
    job = Job()
    for worked in before:
        job.work(worked)
        job.kill()
    job.work(steps)
    job.kill(back=2)
    for worked in after:
        job.work(worked)
        job.kill()
    job.work(60)
    assert outcome("rework", job.evidence()) is Outcome.FAIL


def test_a_notice_at_the_time_of_a_kill_is_not_charged_with_the_step_that_the_kill_broke() -> None:
    story = undisturbed(5)
    story.up(5.0, "node-2")
    story.begin(5.05, 6, "node-0", "node-1", "node-2")
    story.kill(5.1, "node-1")
    story.tell(h.FaultInjected, 5.11, fault=1, kind="notice", nodes=("node-2",))
    told = {"fault": 1, "what": "published", "deadline_wall_s": 1_700_000_035.0}
    story.tell(h.FaultEffect, 5.11, "node-2", **told)
    story.step(6.0, 6, "node-0", "node-2", generation=2)
    story.gone(6.2, "node-2", by_itself=True, code=0)
    story.tell(h.FaultEffect, 6.2, "node-2", fault=1, what="gone")
    story.tell(h.FaultHealed, 6.2, fault=1)
    story.step(7.0, 7, "node-0", generation=3)
    evidence = ended(story).evidence(
        KILL, NOTICE, snapshot_every_steps=5, peers_hold_state=True, drains_on_notice=True
    )
    assert outcome("notice", evidence) is Outcome.PASS
    assert measured(evidence) == {0: 1, 1: 0}


def test_what_costs_nobody_anything_takes_no_blame_before_it_was_seen_to_act() -> None:
    """The metadata service is closed after the kill, and is asked for only much later."""
    story = undisturbed(5)
    story.begin(5.05, 6, "node-0", "node-1")
    story.kill(5.1, "node-1")
    story.tell(h.FaultInjected, 5.2, fault=1, kind="misbehave", nodes=("node-0",))
    story.step(6.0, 6, "node-0", generation=2)
    story.tell(h.FaultEffect, 7.0, "node-0", fault=1, what="misbehaved")
    story.tell(h.FaultHealed, 8.0, fault=1)
    story.step(9.0, 7, "node-0", generation=2)
    closed = Misbehave(on=Trigger(at_s=1.0), how=Closed())
    evidence = ended(story).evidence(KILL, closed, snapshot_every_steps=5, peers_hold_state=True)
    assert outcome("rework", evidence) is Outcome.PASS
    assert measured(evidence)[0] == 1


@pytest.mark.parametrize(
    ("newcomer_holds", "expected"), [(False, Outcome.PASS), (True, Outcome.FAIL)]
)
def test_a_newcomer_that_was_not_given_the_state_yet_holds_none(
    newcomer_holds: bool, expected: Outcome
) -> None:
    """node-2 has come when the last of the others goes: peers hold the state only if it was given
    it before."""
    story = undisturbed(9)
    story.kill(9.1, "node-1")
    story.up(9.2, "node-2")
    if newcomer_holds:
        story.restored(9.25, 9, "node-2", source="peer")
    story.kill(9.3, "node-0", fault=1)
    for number, step in enumerate(range(6, 12)):
        story.step(11.0 + number, step, "node-2", generation=2)
    evidence = ended(story).evidence(KILL, KILL, snapshot_every_steps=5, peers_hold_state=True)
    assert outcome("rework", evidence) is expected
