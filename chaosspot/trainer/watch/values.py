"""What the machines take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

__all__ = [
    "Advice",
    "Answer",
    "Ask",
    "Blind",
    "Failure",
    "Held",
    "Maintenance",
    "Moment",
    "Notice",
    "Outcome",
    "Pace",
    "Report",
    "Request",
    "Sighted",
    "Trouble",
    "Watch",
    "Withdrawn",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A time by both of this node's clocks."""

    now_s: float
    """Monotonic."""
    wall_s: float
    """Since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How often and how patiently a machine asks.

    A poll follows the one before after ``interval_s``, less a share of up to ``jitter`` of it: so
    a thousand nodes that start together do not ask together, and none is ever late.
    """

    interval_s: float = 2.0
    timeout_s: float = 1.5
    """Bound for one exchange; grows up to fourfold while the service is that slow."""
    jitter: float = 0.1
    blind_after_s: float = 30.0
    """Without a usable answer for so long, the node is blind to notices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request; ``timeout_s`` bounds the whole exchange, from connecting to the last byte."""

    method: str = "GET"
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """The next request, not to be made before ``at_s`` (monotonic)."""

    request: Request
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A whole HTTP response, whatever it says; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent: Moment
    """When the request was."""
    received: Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """No response, or none that is HTTP; ``why`` is for a person."""

    why: str
    timed_out: bool = False
    sent: Moment
    received: Moment


Outcome: TypeAlias = Answer | Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """This node will be taken away: who says so, how, and when.

    ``deadline_wall_s`` is by this node's own clock, and what it may count on: never later than
    what is advertised, and never more than the provider ever gives.
    """

    provider: str
    action: str
    deadline_wall_s: float
    advertised_wall_s: float | None = None
    """What the provider said itself, by its own clock; None when it names no time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Maintenance:
    """Something will be done to this node; ``deadline_wall_s`` is None when it survives that."""

    provider: str
    action: str
    deadline_wall_s: float | None
    advertised_wall_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The provider would rather have this node elsewhere; nothing may ever come of it."""

    provider: str
    action: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawn:
    """What was reported is announced no more: it was taken back, or is over."""

    what: Notice | Maintenance | Advice


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Something too far ahead to act on: it will be reported when its time comes."""

    provider: str
    action: str
    advertised_wall_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """An answer that cannot be used, said once until the reason changes; it is asked again."""

    provider: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Blind:
    """No usable answer for ``for_s``: a notice would not be seen. Said once."""

    provider: str
    why: str
    for_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighted:
    """Usable answers again, after ``for_s`` without."""

    provider: str
    for_s: float


Report: TypeAlias = Notice | Maintenance | Advice | Withdrawn | Held | Trouble | Blind | Sighted


class Watch(Protocol):
    """One provider's state machine; a frozen value."""

    @property
    def ask(self) -> Ask:
        """What to do next."""

    def hear(self, outcome: Outcome, jitter: float) -> tuple[Watch, tuple[Report, ...]]:
        """What came of ``ask``; ``jitter`` is from [0, 1). The next state, and what to report."""
