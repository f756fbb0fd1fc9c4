"""How an object store may misbehave: values that schedules and the service share.

Each kind imitates what clients of S3 have reported; deciding when one strikes is the service's
part.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from msgspec import Meta

from chaosspot.toml import Value

__all__ = [
    "OPERATIONS",
    "BitFlip",
    "Denied",
    "ExpiredToken",
    "Failure",
    "LostReply",
    "NoSuchUpload",
    "Operation",
    "SlowDown",
    "SlowFirstByte",
    "StoreMisbehaviour",
    "StoreMisbehaviourKind",
    "TimeTooSkewed",
    "Truncated",
]

Operation = Literal[
    "get",
    "head",
    "list",
    "put",
    "copy",
    "delete",
    "multipart-create",
    "multipart-part",
    "multipart-complete",
    "multipart-abort",
    "other",
]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_MULTIPART: tuple[Operation, ...] = ("multipart-part", "multipart-complete", "multipart-abort")

Seconds = Annotated[float, Meta(ge=0.0)]
Some = Annotated[float, Meta(gt=0.0)]
Share = Annotated[float, Meta(ge=0.0, lt=1.0)]
Pattern = Annotated[str, Meta(min_length=1)]
Ending = Literal["closed", "reset"]


class StoreMisbehaviour(Value, frozen=True, kw_only=True, tag_field="kind"):
    """One way to misbehave, and towards whom.

    ``nodes`` and ``keys`` are shell patterns (``node-*``, ``snapshots/*``); the key of a request
    that is about a bucket or about several keys is empty. ``operations`` are the classes of
    requests that may be struck; without any, all that the kind makes sense for. Listing includes
    parts, versions and uploads; ``other`` is what configures buckets and objects.

    Of the requests that match, each is struck with probability ``rate``, which ``seed``, the node,
    the class and the number of the request in its class decide; only the ``first`` so many of each
    node count. It ends after ``lasts_s``, or when it is taken away.
    """

    POSSIBLE: ClassVar[tuple[Operation, ...]] = OPERATIONS

    nodes: Pattern = "*"
    operations: tuple[Operation, ...] = ()
    keys: Pattern = "*"
    rate: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Meta(ge=0)] = 0
    first: Annotated[int, Meta(ge=1)] | None = None
    lasts_s: Some | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for operation in self.operations:
            if operation not in self.POSSIBLE:
                known = ", ".join(self.POSSIBLE)
                raise ValueError(f"operations: {operation!r} has no meaning here; valid: {known}")


class SlowDown(StoreMisbehaviour, frozen=True, kw_only=True, tag="slow-down"):
    """503 SlowDown; with ``above_per_s``, only to what exceeds so many in a second.

    That limit is the bucket's: the requests of all nodes that match count together.
    """

    above_per_s: Annotated[int, Meta(ge=0)] | None = None


class Failure(StoreMisbehaviour, frozen=True, kw_only=True, tag="failure"):
    """500 InternalError or 503 ServiceUnavailable; nothing is done."""

    status: Literal[500, 503] = 500


class SlowFirstByte(StoreMisbehaviour, frozen=True, kw_only=True, tag="slow-first-byte"):
    """What is asked is done, and the first byte of the answer comes ``delay_s`` later.

    ``jitter_s``: a share of it, that the seed decides, is added.
    """

    delay_s: Seconds
    jitter_s: Seconds = 0.0


class Truncated(StoreMisbehaviour, frozen=True, kw_only=True, tag="truncated"):
    """The connection ends after the share ``keep`` of the body, whose whole length was told."""

    POSSIBLE: ClassVar[tuple[Operation, ...]] = ("get", "list")

    keep: Share = 0.5
    ending: Ending = "closed"


class LostReply(StoreMisbehaviour, frozen=True, kw_only=True, tag="lost-reply"):
    """What is asked is done, and the connection ends without an answer."""

    POSSIBLE: ClassVar[tuple[Operation, ...]] = (
        "put",
        "copy",
        "delete",
        "multipart-create",
        *_MULTIPART,
    )

    ending: Ending = "closed"


class BitFlip(StoreMisbehaviour, frozen=True, kw_only=True, tag="bit-flip"):
    """One bit of what is read is wrong; its sums are those of the right bytes.

    Which bit, the seed decides, for each read anew. With ``at_byte`` it is in that byte of the
    object, as if the disk were bad: reads of other ranges are right.
    """

    POSSIBLE: ClassVar[tuple[Operation, ...]] = ("get",)

    at_byte: Annotated[int, Meta(ge=0)] | None = None


class ExpiredToken(StoreMisbehaviour, frozen=True, kw_only=True, tag="expired-token"):
    """400 ExpiredToken: the credentials are not good any more."""


class TimeTooSkewed(StoreMisbehaviour, frozen=True, kw_only=True, tag="time-too-skewed"):
    """403 RequestTimeTooSkewed; the store's clock is told to be ``skew_s`` ahead."""

    skew_s: Annotated[float, Meta(ge=-864000.0, le=864000.0)] = 3600.0


class Denied(StoreMisbehaviour, frozen=True, kw_only=True, tag="denied"):
    """403 AccessDenied, as after a change of the bucket's policy."""


class NoSuchUpload(StoreMisbehaviour, frozen=True, kw_only=True, tag="no-such-upload"):
    """404 NoSuchUpload: the upload is aborted just before, as a rule of the bucket may do."""

    POSSIBLE: ClassVar[tuple[Operation, ...]] = _MULTIPART


StoreMisbehaviourKind: TypeAlias = (
    SlowDown
    | Failure
    | SlowFirstByte
    | Truncated
    | LostReply
    | BitFlip
    | ExpiredToken
    | TimeTooSkewed
    | Denied
    | NoSuchUpload
)
