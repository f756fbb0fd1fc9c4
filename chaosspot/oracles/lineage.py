"""The chain of commits that the final state descends from, and what was thrown away.

An *attempt* is one try at one step. Attempts are told apart by their generation and, because a
coordinator that was restarted may count from 1 again, by what cannot be twice in one attempt: a
process begins it once, and a process that first spoke after the attempt was committed, or after
one of those in it had ended, is in another one. The lineage is followed from the final state
backwards by parent digests where they are reported, else by step and time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

from chaosspot import history as h

__all__ = ["Attempt", "Lineage", "Process", "key_of", "process_of"]

Process = tuple[str, int, int, int]


def key_of(record: h.Begin | h.Commit) -> tuple[int, int]:
    """Step and generation (0 where none is reported); several attempts may share them."""
    return (record.step, record.generation or 0)


process_of: Callable[[h.Record], Process] = attrgetter("node", "incarnation", "rank", "pid")
"""Which process wrote a record."""

_OF_HARNESS = frozenset(h.EVENTS[name] for name in h.HARNESS)
_MOST_HOLES = 1000  # a trainer may report any number as a step


class Attempt:
    """One try at a step: everything that was reported of it."""

    def __init__(self, step: int, generation: int) -> None:
        self.step = step
        self.generation = generation
        self.begins: list[h.Begin] = []
        self.commits: list[h.Commit] = []
        self.processes: set[Process] = set()
        self.first = 0  # when it was first heard of and first committed, in records of the history
        self.committed = 0

    @property
    def t(self) -> float:
        """When it was first heard of (monotonic seconds)."""
        return min(record.t for record in self.records)

    @property
    def records(self) -> tuple[h.Begin | h.Commit, ...]:
        return (*self.begins, *self.commits)

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(sorted(record.seq for record in self.records))


class Lineage:
    """Built once from a history, in the order things happened."""

    def __init__(self, records: Iterable[h.Record]) -> None:
        reader = _Reader()
        for record in records:
            reader.read(record)
        self.attempts = tuple(reader.attempts)
        self._of = reader.of
        self._by_step: dict[int, list[Attempt]] = defaultdict(list)
        for attempt in self.attempts:
            self._by_step[attempt.step].append(attempt)

    @cached_property
    def commits(self) -> dict[int, h.Commit]:
        """The lineage: one commit a step, ascending; steps nobody reported are missing."""
        return dict(sorted(self._walk.items()))

    @cached_property
    def breaks(self) -> list[h.Commit]:
        """Lineage commits whose parent is not the state that the step before left behind."""
        chain = self.commits
        return [
            commit
            for step, commit in chain.items()
            if commit.parent is not None
            and (before := chain.get(step - 1)) is not None
            and before.digest is not None
            and before.digest != commit.parent
        ]

    @cached_property
    def holes(self) -> list[int]:
        """Steps within the lineage of which no commit was reported; the first thousand."""
        missing: list[int] = []
        for before, after in pairwise(self.commits):
            room = _MOST_HOLES - len(missing)
            missing += range(before + 1, min(after, before + 1 + room))
        return missing

    @cached_property
    def abandoned(self) -> list[Attempt]:
        """Attempts at the lineage's steps that are not part of it, in order of time.

        A step that was begun and for which the run ended before any commit is not abandoned.
        """
        kept = {id(self.attempt_of(commit)) for commit in self.commits.values()}
        return [a for a in self.attempts if id(a) not in kept and a.step in self.commits]

    def thrown_t(self, attempt: Attempt) -> float:
        """When an abandoned attempt was thrown away: when training next went back to its step, or
        to one before. When it was first heard of, if training was past it already.
        """
        return self._back_t.get(id(attempt), attempt.t)

    @cached_property
    def _back_t(self) -> dict[int, float]:
        """When training next went back to each attempt's step or before, by the attempt's id.

        An attempt of an older generation that was never committed is a straggler's: nobody went
        back with it.
        """
        found: dict[int, float] = {}
        ahead: list[Attempt] = []  # ascending steps: those behind which nobody has gone yet
        newest = 0
        for attempt in self.attempts:
            if attempt.commits or attempt.generation >= newest:
                while ahead and ahead[-1].step >= attempt.step:
                    found[id(ahead.pop())] = attempt.t
            place = bisect_right(ahead, attempt.step, key=attrgetter("step"))
            ahead.insert(place, attempt)
            newest = max(newest, attempt.generation)
        return found

    def attempt_of(self, record: h.Begin | h.Commit) -> Attempt:
        """The attempt that a begin or commit of this history belongs to."""
        return self._of[record.seq]

    @cached_property
    def _walk(self) -> dict[int, h.Commit]:
        chain: dict[int, h.Commit] = {}
        child: h.Commit | None = None
        for step in sorted(self._by_step, reverse=True):
            commit = self._before(step, child)
            if commit is not None:
                chain[step] = child = commit
        return chain

    def _before(self, step: int, child: h.Commit | None) -> h.Commit | None:
        """The commit of ``step`` that ``child`` descends from; the latest when nothing tells."""
        tries = [a for a in self._by_step[step] if a.commits]
        if child is not None:
            first = self.attempt_of(child).first
            tries = [a for a in tries if a.committed < first] or tries
            if child.parent is not None and child.step == step + 1:
                same = [c for a in tries for c in a.commits if c.digest == child.parent]
                if same:
                    return same[-1]
        if not tries:
            return None
        latest = tries[-1]
        # Several digests in one attempt: ranks disagree, and equality says so; take the majority.
        digests = [c.digest for c in latest.commits]
        best = max(digests, key=lambda d: (digests.count(d), str(d)))
        return next(c for c in latest.commits if c.digest == best)


class _Reader:
    """Sorts begins and commits into attempts, which stand in the order they were first heard of."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.of: dict[int, Attempt] = {}  # by sequence number
        self._latest: dict[tuple[int, int], Attempt] = {}
        self._own: dict[tuple[Process, tuple[int, int]], Attempt] = {}  # that a process began
        self._born: dict[Process, int] = {}  # when a living process first spoke, in records
        self._ended: dict[Process, int] = {}
        self._count = 0

    def read(self, record: h.Record) -> None:
        self._count += 1
        kind = type(record)  # twice as fast as isinstance, of which there would be several
        if kind is h.NodeGone or kind is h.NodeRestart:
            for who in [process for process in self._born if process[0] == record.node]:
                del self._born[who]
                self._ended.setdefault(who, self._count)
        elif kind not in _OF_HARNESS:
            who = process_of(record)
            self._born.setdefault(who, self._count)
            if isinstance(record, h.Begin):
                attempt = self._begin(who, key_of(record))
                attempt.begins.append(record)
            elif isinstance(record, h.Commit):
                attempt = self._commit(who, key_of(record))
                attempt.commits.append(record)
                attempt.committed = attempt.committed or self._count
            else:
                return
            attempt.processes.add(who)
            self.of[record.seq] = attempt

    def _begin(self, who: Process, key: tuple[int, int]) -> Attempt:
        attempt = self._latest.get(key)
        if (
            attempt is None
            or self._own.get((who, key)) is attempt
            or 0 < attempt.committed < self._born[who]
            or self._broken(attempt, who)
        ):
            attempt = self._open(key)
        self._own[who, key] = attempt
        return attempt

    def _commit(self, who: Process, key: tuple[int, int]) -> Attempt:
        """Of the attempt that the process began; where it reports no begins, of the latest."""
        if own := self._own.get((who, key)):
            return own
        attempt = self._latest.get(key)
        if attempt is None or who in attempt.processes or self._broken(attempt, who):
            attempt = self._open(key)
        return attempt

    def _broken(self, attempt: Attempt, who: Process) -> bool:
        """Whether the attempt had lost one of its processes when this one first spoke."""
        if not self._ended:
            return False
        born = self._born[who]
        return any(self._ended.get(other, born) < born for other in attempt.processes)

    def _open(self, key: tuple[int, int]) -> Attempt:
        attempt = Attempt(*key)
        attempt.first = self._count
        self.attempts.append(attempt)
        self._latest[key] = attempt
        return attempt
