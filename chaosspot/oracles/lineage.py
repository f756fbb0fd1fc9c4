"""The chain of commits that the final state descends from, and what was thrown away.

An *attempt* is one try at one step, told apart by its generation. The lineage is followed from
the final state backwards by parent digests where they are reported, else by step and latest
generation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from chaosspot import history as h

__all__ = ["Attempt", "Lineage", "key_of"]


def key_of(record: h.Begin | h.Commit) -> tuple[int, int]:
    """What tells attempts apart: step and generation (0 where none is reported)."""
    return (record.step, record.generation or 0)


class Attempt:
    """One try at a step: everything that was reported of it."""

    def __init__(self, step: int, generation: int) -> None:
        self.step = step
        self.generation = generation
        self.begins: list[h.Begin] = []
        self.commits: list[h.Commit] = []

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
    """Built once from a history's begins and commits."""

    def __init__(self, records: Iterable[h.Record]) -> None:
        attempts: dict[tuple[int, int], Attempt] = {}
        for record in records:
            if isinstance(record, h.Begin | h.Commit):
                key = key_of(record)
                attempt = attempts.setdefault(key, Attempt(*key))
                if isinstance(record, h.Begin):
                    attempt.begins.append(record)
                else:
                    attempt.commits.append(record)
        self.attempts = attempts
        self._by_step: dict[int, list[Attempt]] = defaultdict(list)
        for attempt in attempts.values():
            self._by_step[attempt.step].append(attempt)
        for tries in self._by_step.values():
            tries.sort(key=lambda a: a.generation)

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
        """Steps within the lineage of which no commit was reported."""
        steps = self.commits
        return (
            [step for step in range(min(steps), max(steps)) if step not in steps] if steps else []
        )

    @cached_property
    def abandoned(self) -> list[Attempt]:
        """Attempts at the lineage's steps that are not part of it, in order of time.

        A step that was begun and for which the run ended before any commit is not abandoned.
        """
        chain = self.commits
        kept = {key_of(commit) for commit in chain.values()}
        rest = [a for key, a in self.attempts.items() if key not in kept and a.step in chain]
        return sorted(rest, key=lambda a: a.t)

    def redo_t(self, attempt: Attempt) -> float:
        """When the lineage's own attempt at the same step started."""
        return self.attempt_of(self.commits[attempt.step]).t

    def attempt_of(self, commit: h.Commit) -> Attempt:
        return self.attempts[key_of(commit)]

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
            tries = [a for a in tries if a.generation <= key_of(child)[1]] or tries
            if child.parent is not None and child.step == step + 1:
                same = [c for a in tries for c in a.commits if c.digest == child.parent]
                if same:
                    return max(same, key=key_of)
        if not tries:
            return None
        latest = tries[-1]
        # Several digests in one attempt: ranks disagree, and equality says so; take the majority.
        digests = [c.digest for c in latest.commits]
        best = max(digests, key=lambda d: (digests.count(d), str(d)))
        return next(c for c in latest.commits if c.digest == best)
