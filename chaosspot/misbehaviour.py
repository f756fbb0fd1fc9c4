"""How a metadata service may misbehave: values that schedules and the service share.

Each kind imitates what clients of real services have reported; deciding when one strikes is the
service's part.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from chaosspot.toml import Value

__all__ = [
    "BlackHole",
    "Body",
    "Closed",
    "ContentType",
    "Duplicate",
    "FarFuture",
    "Latency",
    "Misbehaviour",
    "MisbehaviourKind",
    "Reset",
    "Skew",
    "Status",
    "TokenKill",
    "Withdraw",
]

Seconds = Annotated[float, Meta(ge=0.0)]
Some = Annotated[float, Meta(gt=0.0)]
Pattern = Annotated[str, Meta(min_length=1)]


class Misbehaviour(Value, frozen=True, kw_only=True, tag_field="kind"):
    """One way to misbehave, and towards whom.

    ``nodes`` and ``paths`` are shell patterns (``node-*``, ``/latest/api/*``). Of the requests
    that match, each is struck with probability ``rate``, which ``seed``, the node and the number
    of the request decide; only the ``first`` so many of each node count. It ends after
    ``lasts_s``, or when it is taken away.
    """

    nodes: Pattern = "*"
    paths: Pattern = "*"
    rate: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Meta(ge=0)] = 0
    first: Annotated[int, Meta(ge=1)] | None = None
    lasts_s: Some | None = None


class Latency(Misbehaviour, frozen=True, kw_only=True, tag="latency"):
    """The answer comes ``delay_s`` late, and a share of ``jitter_s`` that the seed decides."""

    delay_s: Seconds
    jitter_s: Seconds = 0.0


class Status(Misbehaviour, frozen=True, kw_only=True, tag="status"):
    """The answer is an error; with ``above_per_s``, only to what exceeds so many in a second."""

    status: Literal[400, 401, 403, 404, 405, 408, 410, 429, 500, 502, 503, 504]
    above_per_s: Annotated[int, Meta(ge=0)] | None = None


class Body(Misbehaviour, frozen=True, kw_only=True, tag="body"):
    """Status 200, and in place of the value an HTML page or nothing."""

    body: Literal["html", "empty"]


class ContentType(Misbehaviour, frozen=True, kw_only=True, tag="content-type"):
    """The right body under another content type."""

    content_type: Annotated[str, Meta(pattern=r"^[\x20-\x7e]+$")] = "application/json"


class Reset(Misbehaviour, frozen=True, kw_only=True, tag="reset"):
    """The connection is reset: when accepted, within the head, or in the middle of the body.

    Which path is asked for is not known yet when a connection is accepted.
    """

    stage: Literal["accept", "head", "body"] = "accept"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage == "accept" and self.paths != "*":
            raise ValueError(f"paths = {self.paths!r} has no meaning with stage = 'accept'")


class BlackHole(Misbehaviour, frozen=True, kw_only=True, tag="black-hole"):
    """The request is read and never answered."""


class Closed(Misbehaviour, frozen=True, kw_only=True, tag="closed"):
    """Connections are refused; the listener is there again, at its address, when this ends.

    ``rate`` is the share of the nodes that match.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.paths != "*" or self.first is not None:
            raise ValueError("paths and first have no meaning for a closed listener")


class TokenKill(Misbehaviour, frozen=True, kw_only=True, tag="token-kill"):
    """AWS: tokens die ``after_s`` after they were made, whatever lifetime they were given."""

    after_s: Seconds


class Withdraw(Misbehaviour, frozen=True, kw_only=True, tag="withdraw"):
    """A notice is not there any more ``after_s`` after it was first to be seen."""

    after_s: Seconds


class Duplicate(Misbehaviour, frozen=True, kw_only=True, tag="duplicate"):
    """The same notice again and again as if new, every ``every_s``.

    AWS: its time is a second later each time. Google Cloud: another ETag. Azure: the same event
    under another incarnation.
    """

    every_s: Some


class FarFuture(Misbehaviour, frozen=True, kw_only=True, tag="far-future"):
    """Notices are for ``ahead_s`` later than they were published for."""

    ahead_s: Some = 14 * 86400.0


class Skew(Misbehaviour, frozen=True, kw_only=True, tag="skew"):
    """The times that are told are off by ``skew_s``; the ``Date`` header is right."""

    skew_s: Annotated[float, Meta(ge=-86400.0, le=86400.0)]


MisbehaviourKind: TypeAlias = (
    Latency
    | Status
    | Body
    | ContentType
    | Reset
    | BlackHole
    | Closed
    | TokenKill
    | Withdraw
    | Duplicate
    | FarFuture
    | Skew
)
