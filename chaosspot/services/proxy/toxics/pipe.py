"""What toxics are made of: pipes, which decide when which piece of a stream goes on.

A pipe is a generator without clock, socket or randomness of its own. It asks for a chunk
(:class:`Take`), for time to pass (:class:`Wait`) or gives a chunk on (by yielding it), and is told
what came of it. It ends with an :class:`Ending`. Whoever drives it may do so in virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, TypeAlias

import msgspec

__all__ = [
    "INT_MAX",
    "MS_MAX",
    "TAKE",
    "US_MAX",
    "Answer",
    "Ask",
    "Attributes",
    "Chunk",
    "Ending",
    "Event",
    "Flow",
    "Give",
    "Kind",
    "Pipe",
    "Take",
    "Wait",
    "ending_of",
    "passing",
    "within",
]

INT_MAX = 2**63 - 1
MS_MAX = INT_MAX // 10**6  # more milliseconds than a 64-bit count of nanoseconds holds
US_MAX = INT_MAX // 10**3


class Chunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes that travel together, and when they got to where they are (seconds, monotonic)."""

    data: bytes
    since_s: float


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The next chunk is asked for; from ``until_s`` on its absence is an answer, too."""

    until_s: float = math.inf


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is to happen until then."""

    until_s: float


class Give(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk is given on; whether who comes next takes it is waited for until ``until_s``."""

    chunk: Chunk
    until_s: float


class Event(Enum):
    """What a pipe is told, other than a chunk."""

    END = "nothing comes any more"
    DUE = "it is time"
    GIVEN = "the chunk was taken"
    INTERRUPTED = "the toxic is changed or removed: give on what you hold, and end"


class Ending(Enum):
    """How a pipe ends."""

    ON = "the stream goes on without it"
    CLOSE = "the stream ends here"
    HALF = "the stream ends here, and the other direction goes on"
    RESET = "the connection is reset at once"


TAKE = Take()
Ask: TypeAlias = Take | Wait | Give | Chunk
Answer: TypeAlias = Chunk | Event
Pipe: TypeAlias = Generator[Ask, Answer, Ending]


class Flow:
    """What a pipe may look at: the time, a random stream of its own, what it let through before.

    It outlives changes of the toxic.

    Args:
        now: seconds, monotonic.
        draw: a number in [0, 1) that its arguments and the seed decide.
    """

    __slots__ = ("_drawn", "draw", "now", "passed_bytes")

    def __init__(self, now: Callable[[], float], draw: Callable[..., float]) -> None:
        self.now = now
        self.draw = draw
        self.passed_bytes = 0
        self._drawn = 0

    def next(self) -> float:
        """The next number of the stream, in [0, 1)."""
        self._drawn += 1
        return self.draw("next", self._drawn)


class Attributes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attributes of one kind of toxic: whole numbers, named and measured as Toxiproxy does.

    Raises:
        ValueError: one that makes no sense, which the message names.
    """


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of toxic.

    ``capacity`` says how many chunks may wait in front of it. With ``closes_when_removed`` its
    removal closes the connections that it was running on; with ``resets`` the connections that
    were opened under it are closed by a reset; with ``refuses`` they are not accepted. ``own``
    ones are unknown to Toxiproxy.
    """

    name: str
    attributes: type[Attributes]
    pipe: Callable[[Any, Flow], Pipe]
    capacity: Callable[[Any], int] = lambda attributes: 1
    closes_when_removed: bool = False
    resets: bool = False
    refuses: bool = False
    own: bool = False


def ending_of(told: Answer) -> Ending:
    """How a pipe ends that was told this in place of a chunk, and holds nothing."""
    return Ending.ON if told is Event.INTERRUPTED else Ending.CLOSE


def passing(attributes: Attributes, flow: Flow) -> Pipe:
    """The pipe that does nothing."""
    while isinstance(told := (yield TAKE), Chunk):
        yield told
    return ending_of(told)


def within(least: int, most: int, **given: int) -> None:
    """Refuse an attribute that is out of range."""
    for name, value in given.items():
        if not least <= value <= most:
            raise ValueError(f"{name}={value!r}: expected {least} to {most}")
