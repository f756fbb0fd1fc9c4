"""What the three machines share: pace, patience, blindness, clocks, and the events they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Self

from chaosspot.trainer.watch.book import Entry, Event, Sight, see
from chaosspot.trainer.watch.values import (
    Answer,
    Blind,
    Failure,
    Moment,
    Outcome,
    Pace,
    Report,
    Sighted,
    Trouble,
)

__all__ = ["Core", "ahead_s", "http_date_s", "reason", "utc_s"]

_PATIENCE = 4  # times the timeout
_FORGETS = 0.8  # of its patience is left after an answer that was quick


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """Where a watch stands, whichever the provider.

    Args:
        seen_s: the last usable answer to the question that matters, or the start (monotonic).
        looked_s: when each source was last asked with a usable answer (monotonic).
        patience_s: bound for the next exchange.
        trouble: the reason of the latest failure; empty after a usable answer.
    """

    provider: str
    pace: Pace
    began_s: float
    seen_s: float
    patience_s: float
    looked_s: Mapping[str, float] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    trouble: str = ""
    blind: bool = False

    @classmethod
    def start(cls, provider: str, pace: Pace, began: Moment) -> Self:
        return cls(
            provider=provider,
            pace=pace,
            began_s=began.now_s,
            seen_s=began.now_s,
            patience_s=pace.timeout_s,
        )

    def shown(
        self,
        answer: Answer,
        source: str,
        events: Sequence[Event],
        *,
        matters: bool = False,
        hung: bool = False,
    ) -> tuple[Core, tuple[Report, ...]]:
        """``source`` shows exactly ``events`` for this node.

        Args:
            matters: this answers the question that tells of interruptions; without one, the node
                is blind.
            hung: the request waited for a change, so that one is no older than a poll, or than
                the answer, which may have been long on its way.
        """
        now_s = answer.received.now_s
        made_s = now_s - age_s(answer)
        first_s = self.looked_s.get(source, self.began_s)
        if hung:
            first_s = max(first_s, min(made_s, now_s - self.pace.interval_s))
        sight = Sight(
            provider=self.provider,
            at=answer.received,
            first_s=first_s,
            ahead_s=ahead_s(answer) if events else 0.0,
            margin_s=self.pace.interval_s,
        )
        entries, reports = see(self.entries, source, events, sight)
        looked_s = {**self.looked_s, source: made_s if hung else answer.sent.now_s}
        after = replace(self, entries=entries, looked_s=looked_s)
        if not hung:
            after = after.heard(answer)
        if not matters:
            return after, reports
        if self.blind:
            seen_again = Sighted(provider=self.provider, for_s=now_s - self.seen_s)
            reports = (seen_again, *reports)
        return replace(after, seen_s=now_s, trouble="", blind=False), reports

    def failed(self, outcome: Outcome, why: str) -> tuple[Core, tuple[Report, ...]]:
        """The question that matters got no usable answer."""
        reports: list[Report] = []
        if why != self.trouble:
            reports.append(Trouble(provider=self.provider, why=why))
        unseen_s = outcome.received.now_s - self.seen_s
        blind = unseen_s >= self.pace.blind_after_s
        if blind and not self.blind:
            reports.append(Blind(provider=self.provider, why=why, for_s=unseen_s))
        return replace(self.heard(outcome), trouble=why, blind=blind), tuple(reports)

    def heard(self, outcome: Outcome) -> Core:
        """As patient from now on as this exchange suggests."""
        most_s = _PATIENCE * self.pace.timeout_s
        if isinstance(outcome, Answer):
            took_s = outcome.received.now_s - outcome.sent.now_s
            wanted_s = max(2 * took_s, _FORGETS * self.patience_s)
        elif outcome.timed_out:
            wanted_s = 2 * self.patience_s
        else:
            return self
        wanted_s = min(most_s, max(self.pace.timeout_s, wanted_s))
        return self if wanted_s == self.patience_s else replace(self, patience_s=wanted_s)

    def due_s(self, began_s: float, received: Moment, jitter: float) -> float:
        """When the poll after the one that began then is due."""
        pause_s = self.pace.interval_s * (1.0 - self.pace.jitter * jitter)
        return max(received.now_s, began_s + pause_s)


def ahead_s(answer: Answer) -> float:
    """How far the service's wall clock is ahead of this node's, by the ``Date`` of its answer.

    0 when the two may well agree: a date has whole seconds and was set at some time during the
    exchange. Else the most that it may be, which leaves the least time.
    """
    date_s = http_date_s(answer.headers.get("date", ""))
    if date_s is None:
        return 0.0
    least_s, most_s = date_s - answer.received.wall_s, date_s + 1.0 - answer.sent.wall_s
    return 0.0 if least_s <= 0.0 <= most_s else most_s


def age_s(answer: Answer) -> float:
    """How long ago the answer was made at most, by its ``Date``; 0 where that tells nothing."""
    date_s = http_date_s(answer.headers.get("date", ""))
    if date_s is None or ahead_s(answer):
        return 0.0
    return answer.received.wall_s - date_s


def http_date_s(text: str) -> float | None:
    """Seconds since the epoch; None when it is no date as in mail and HTTP headers."""
    try:
        return utc_s(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def utc_s(at: datetime) -> float:
    """Seconds since the epoch; what names no zone is in UTC."""
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def reason(outcome: Outcome, what: str) -> str:
    """Why an outcome is of no use, for a person."""
    if isinstance(outcome, Failure):
        return f"{what}: {outcome.why}"
    return f"{what}: status {outcome.status}"
