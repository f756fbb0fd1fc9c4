"""The same as rules, for people who prefer them to strategies.

Rules only plan: each adds to a schedule on a model of the cluster. What was planned is attacked
with when a case ends, so that nothing starts before, preconditions never look at live processes,
and what fails is a schedule that a file can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec import structs

from chaosspot import conductor, toml
from chaosspot.nodes import ClusterSpec, Group
from chaosspot.schedule import FaultKind, Kill, Notice, Pause, Schedule, Target, Trigger
from chaosspot.verdict import Verdict

__all__ = ["SpotMachine"]

_MOST = 4  # faults of one case
_GAP_STEPS = st.integers(1, 20)


class SpotMachine(RuleBasedStateMachine):
    """Notices, kills, pauses and replacements, of a trainer that a subclass names.

    ``trainer`` and ``nodes`` say what is attacked, ``pauses`` whether it can be paused.
    ``attack`` is what attacks; the verdict has to pass::

        class MySpot(SpotMachine):
            trainer = "minimal"

        TestMySpot = MySpot.TestCase
        TestMySpot.settings = settings(attacking, max_examples=5, stateful_step_count=4)
    """

    trainer: ClassVar[str] = "reference"
    nodes: ClassVar[int] = 3
    pauses: ClassVar[bool] = True
    attack: ClassVar[Callable[..., Verdict]] = staticmethod(conductor.attack)

    def __init__(self) -> None:
        super().__init__()
        self._faults: list[FaultKind] = []
        self._step = 0
        self._down = 0  # nodes that are gone in the model, and nothing has come for them

    def _may_lose_one(self) -> bool:
        return len(self._faults) < _MOST and self.nodes - self._down > 1

    def _may_be_paused(self) -> bool:
        return self.pauses and len(self._faults) < _MOST

    def _add(self, gap: int, make: Callable[[Trigger], FaultKind]) -> None:
        self._step += gap
        self._faults.append(make(Trigger(at_step=self._step)))

    @precondition(_may_lose_one)
    @rule(gap=_GAP_STEPS)
    def kill(self, gap: int) -> None:
        """A node goes without a word, and nothing comes for it."""
        self._down += 1
        self._add(gap, lambda on: Kill(on=on, target=Target(count=1)))

    @precondition(_may_lose_one)
    @rule(gap=_GAP_STEPS, lead_s=st.integers(3, 5))
    def notice(self, gap: int, lead_s: int) -> None:
        """A node is told to go, and nothing comes for it."""
        self._down += 1
        one = Target(count=1)
        self._add(gap, lambda on: Notice(on=on, target=one, lead_s=float(lead_s), shutdown_s=0.5))

    @precondition(lambda self: len(self._faults) < _MOST)
    @rule(gap=_GAP_STEPS, back_tenths=st.integers(1, 20))
    def replace(self, gap: int, back_tenths: int) -> None:
        """A node goes, and a new one comes in its place."""
        back_s = back_tenths / 10
        self._add(gap, lambda on: Kill(on=on, target=Target(count=1), replace_after_s=back_s))

    @precondition(_may_be_paused)
    @rule(gap=_GAP_STEPS, lasts_tenths=st.integers(5, 30))
    def pause(self, gap: int, lasts_tenths: int) -> None:
        """A node stands still for a while."""
        lasts_s = lasts_tenths / 10
        self._add(gap, lambda on: Pause(on=on, target=Target(count=1), duration_s=lasts_s))

    @precondition(lambda self: self._down > 0 and self._faults)
    @rule(back_tenths=st.integers(1, 20))
    def heal(self, back_tenths: int) -> None:
        """What was lost is replaced after all."""
        healed = []
        for fault in self._faults:
            if fault.TAKES_NODES and fault.replace_after_s is None:
                fault = structs.replace(fault, replace_after_s=back_tenths / 10)
            healed.append(fault)
        self._faults, self._down = healed, 0

    def schedule(self) -> Schedule | None:
        """What the rules have planned so far; None for nothing."""
        if not self._faults:
            return None
        cluster = ClusterSpec(group=(Group(count=self.nodes, zones=("a", "b")[: self.nodes]),))
        return Schedule(seed=0, cluster=cluster, fault=tuple(self._faults))

    def teardown(self) -> None:
        """Attack with what was planned; everything is healed and judged when this returns.

        Raises:
            Failed: the trainer did not survive it.
            Unknown: it could not be judged.
        """
        if (plan := self.schedule()) is None:
            return
        note(f"The schedule:\n\n{toml.dumps(plan)}")
        type(self).attack(plan, trainer=self.trainer).check()
