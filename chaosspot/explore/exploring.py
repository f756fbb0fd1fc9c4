"""The search for a schedule that a trainer fails, and for the smallest one that it fails.

A sweep tries each sort of fault at each moment that was seen; then rounds of Hypothesis draw
schedules and aim at what earlier attacks saw. Every attack is made once and written down; what
fails is shrunk and replayed. How an attack is made is passed in.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from chaosspot.explore.aim import aimed
from chaosspot.explore.budget import Budget
from chaosspot.explore.ground import Ground
from chaosspot.explore.journal import Entry, Journal, Purpose
from chaosspot.explore.learned import learned, worth
from chaosspot.explore.simpler import simpler
from chaosspot.explore.sweep import sweep
from chaosspot.explore.trial import Trial, key_of
from chaosspot.nodes import ClusterSpec, Group
from chaosspot.schedule import Schedule
from chaosspot.verdict import Outcome

__all__ = ["Attack", "Exploration", "Explorer", "Found", "Watcher"]

_ROUND = 12  # draws of one round, after which what they have shown is aimed at
_IDLE_ROUNDS = 8  # without anything new: all that can be drawn has been tried
_MOST_SHRINKS = 40
_MOST_BACK = 3  # schedules from the smallest on that are replayed, beside the first
REPLAYS = 5

Attack = Callable[[Schedule, Purpose], Trial]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that the trainer fails; ``first`` is what it was before it was shrunk.

    ``attacks`` and ``after_s`` say what it took to find it, ``shrinks`` to make it smaller.
    ``failed_again`` of ``replays`` replays failed by the same oracle.
    """

    schedule: Schedule
    trial: Trial
    first: Schedule
    attacks: int
    after_s: float
    shrinks: int = 0
    replays: int = 0
    failed_again: int = 0


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """What an exploration came to.

    ``stopped``: ``found``, ``budget``, ``exhausted`` (nothing new can be drawn) or ``broken`` (the
    trainer does not even pass undisturbed; ``undisturbed`` says how). ``unconfirmed`` failed once
    and in no replay. ``worst``: the attack that was passed with the worst recovery or rework.
    """

    stopped: str
    attacks: int
    took_s: float
    undisturbed: Trial | None = None
    found: Found | None = None
    unconfirmed: tuple[Found, ...] = ()
    worst: Entry | None = None


class Watcher(Protocol):
    """Who watches an exploration."""

    def attacked(self, entry: Entry, share: float) -> None:
        """One more attack is done; ``share`` of the budget is spent."""

    def found(self, found: Found) -> None:
        """The trainer fails; shrinking begins."""


class Silent:
    """A watcher that says nothing."""

    def attacked(self, entry: Entry, share: float) -> None: ...
    def found(self, found: Found) -> None: ...


class _Stop(BaseException):
    """Ends a round of Hypothesis from within; no error that it would look into."""


class _Spent(_Stop):
    """The budget is spent."""


class _Fails(_Stop):
    """A schedule that the trainer fails."""

    def __init__(self, schedule: Schedule, trial: Trial) -> None:
        self.schedule = schedule
        self.trial = trial


class Explorer:
    """One exploration on ``ground``, whose attacks are in ``journal``; see :meth:`run`."""

    def __init__(
        self,
        *,
        ground: Ground,
        attack: Attack,
        journal: Journal,
        budget: Budget,
        seed: int,
        watcher: Watcher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ground = ground
        self._attack = attack
        self._journal = journal
        self._budget = budget
        self._seed = seed
        self._watcher: Watcher = watcher or Silent()
        self._clock = clock
        self._before_s = sum(entry.trial.took_s for entry in journal.entries)
        self._begun_t = clock()
        # What was written down before: the same draws come again, and are answered from here.
        self._written: dict[tuple[str, str], list[Entry]] = {}
        for entry in journal.entries:
            self._written.setdefault(_pile(entry.schedule, entry.purpose), []).append(entry)
        self._asked: dict[tuple[str, str], list[Entry]] = {}
        self._seen: list[Entry] = []  # the same, in the order of asking
        self._best: Found | None = None
        self._unconfirmed: list[Found] = []

    def run(self) -> Exploration:
        """Search until something is found and confirmed, the budget is spent, or all is tried."""
        smallest = ClusterSpec(group=(Group(count=self._ground.min_nodes),))
        cluster = self._ground.clusters[0] if self._ground.clusters else smallest
        try:
            undisturbed = self._settled(Schedule(seed=0, cluster=cluster), "undisturbed")
            if not undisturbed.passed:
                return self._came_to("broken", undisturbed=undisturbed)
            for failing in self._search():
                found = self._smallest(failing)
                if found.failed_again:
                    return self._came_to("found")
                self._unconfirmed.append(found)
                self._best = None
        except _Spent:
            return self._came_to("budget")
        return self._came_to("exhausted")

    # Searching.

    def _search(self) -> Iterator[_Fails]:
        while (plan := self._next_of_sweep()) is not None:
            trial = self._settled(plan, "search")
            if trial.failed:
                yield _Fails(plan, trial)
        idle = 0
        for number in itertools.count():
            before = len(self._seen)
            known = learned(self._seen)
            if not set(self._ground.kinds) - set(known.useless):
                return
            try:
                self._round(number)
            except _Fails as failing:
                yield failing
                continue
            idle = idle + 1 if len(self._seen) == before else 0
            if idle == _IDLE_ROUNDS:
                return

    def _next_of_sweep(self) -> Schedule | None:
        """The next schedule of the sweep that was not attacked with; attacks add to it."""
        untried = (
            plan
            for plan in sweep(self._ground, learned(self._seen), seed=self._seed)
            if _pile(plan, "search") not in self._asked
        )
        return next(untried, None)

    def _round(self, number: int) -> None:
        """Draw and attack for a while."""
        known = learned(self._seen)
        passed_over = {key_of(found.first) for found in self._unconfirmed}

        @seed(_derived(self._seed, number))
        @settings(
            phases=[Phase.generate],  # what is bad is built on by what was learned
            max_examples=_ROUND,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(aimed(self._ground, known))
        def attack(plan: Schedule) -> None:
            trial = self._settled(plan, "search")
            if trial.failed and key_of(plan) not in passed_over:
                raise _Fails(plan, trial)

        attack()

    # Shrinking.

    def _smallest(self, failing: _Fails) -> Found:
        """Shrink what fails, as long as the same oracle says so, and replay it."""
        first = Found(
            schedule=failing.schedule,
            trial=failing.trial,
            first=failing.schedule,
            attacks=sum(entry.purpose in ("undisturbed", "search") for entry in self._seen),
            after_s=round(sum(entry.trial.took_s for entry in self._seen), 1),
        )
        self._best = first
        self._watcher.found(first)
        self._confirm(self._shrink())
        return self._best

    def _confirm(self, way: list[Found]) -> None:
        """Replay the smallest; where it fails by chance, or at the edge of what fails, larger ones.

        ``way``: what failed on the way from the first to the smallest.
        """
        tries = way[::-1]
        if len(tries) > _MOST_BACK + 1:
            tries = [*tries[:_MOST_BACK], way[0]]
        replayed: list[Found] = []
        try:
            for found in tries:
                self._better(schedule=found.schedule, trial=found.trial)
                replayed.append(self._replay(to_the_end=found is way[0]))
                if replayed[-1].failed_again == REPLAYS:
                    break
        finally:
            if replayed:
                self._best = max(replayed, key=lambda found: found.failed_again)

    def _shrink(self) -> list[Found]:
        """Go to simpler schedules while there is one that fails in the same way; the way there."""
        way = [self._better()]
        while (smaller := self._one_smaller()) is not None:
            way.append(self._better(schedule=smaller[0], trial=smaller[1]))
        return way

    def _one_smaller(self) -> tuple[Schedule, Trial] | None:
        found = self._best
        assert found is not None
        ground = self._ground
        for candidate in simpler(
            found.schedule,
            min_nodes=ground.min_nodes,
            min_alive=ground.min_alive,
            keep_fair=ground.fair,
        ):
            if _pile(candidate, "shrink") not in self._asked:  # it costs an attack
                if self._best is None or self._best.shrinks >= _MOST_SHRINKS:
                    return None
                self._better(shrinks=self._best.shrinks + 1)
            trial = self._settled(candidate, "shrink")
            if trial.failed and trial.oracle == found.trial.oracle:
                return candidate, trial
        return None

    def _replay(self, *, to_the_end: bool) -> Found:
        """Attack again; only to the first that does not fail, unless it has to be counted."""
        found = self._better(replays=0, failed_again=0)
        for number in range(REPLAYS):
            trial = self._made(found.schedule, "replay", number)
            again = trial.failed and trial.oracle == found.trial.oracle
            found = self._better(replays=number + 1, failed_again=found.failed_again + again)
            if not again and not to_the_end:
                break
        return found

    def _better(self, **changes: Any) -> Found:
        assert self._best is not None
        self._best = msgspec.structs.replace(self._best, **changes)
        return self._best

    # Attacking.

    def _settled(self, plan: Schedule, purpose: Purpose) -> Trial:
        """What an attack comes to; one that is unknown is made once more.

        Not in a search if a fault found nothing to act on: its moment will not come then either.
        """
        trial = self._made(plan, purpose, 0)
        in_vain = purpose == "search" and trial.oracle == "effect"
        if trial.outcome is not Outcome.UNKNOWN or in_vain:
            return trial
        return self._made(plan, purpose, 1)

    def _made(self, plan: Schedule, purpose: Purpose, number: int) -> Trial:
        """Attack number ``number`` by this schedule: made, if it was not made before.

        Raises:
            _Spent: it would have to be made, and the budget is spent.
        """
        pile = _pile(plan, purpose)
        asked = self._asked.setdefault(pile, [])
        if number < len(asked):
            return asked[number].trial
        written = self._written.get(pile, [])
        if number < len(written):
            entry = written[number]
        else:
            if not self._budget.left(len(self._journal.entries), self._took_s):
                raise _Spent
            entry = _entry(plan, self._attack(plan, purpose), purpose)
            self._journal.add(entry)
        asked.append(entry)
        self._seen.append(entry)
        share = self._budget.share(len(self._journal.entries), self._took_s)
        self._watcher.attacked(entry, share)
        return entry.trial

    @property
    def _took_s(self) -> float:
        return self._before_s + self._clock() - self._begun_t

    def _came_to(self, stopped: str, *, undisturbed: Trial | None = None) -> Exploration:
        passed = [e for e in self._seen if e.purpose == "search" and e.trial.passed]
        worst = max(passed, key=worth, default=None)
        found = self._best
        return Exploration(
            stopped=stopped,
            attacks=len(self._journal.entries),
            took_s=round(self._took_s, 1),
            undisturbed=undisturbed,
            found=found,
            unconfirmed=tuple(self._unconfirmed),
            worst=worst if worst is not None and worth(worst) > (0, 0) else None,
        )


def _entry(plan: Schedule, trial: Trial, purpose: Purpose = "search") -> Entry:
    return Entry(purpose=purpose, key=key_of(plan), schedule=plan, trial=trial)


def _pile(plan: Schedule, purpose: Purpose) -> tuple[str, str]:
    """Attacks that are one and the same, however often they are asked for; replays are new ones."""
    return ("replay" if purpose == "replay" else "", key_of(plan))


def _derived(seed: int, number: int) -> int:
    """The seed of one round."""
    data = f"{seed}:{number}".encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
