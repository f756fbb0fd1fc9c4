"""The toxics of one direction of one connection, without sockets: chunks in, chunks out.

Nothing here waits: what is due when is asked for (:attr:`Chain.next_s`), and time passes by
:meth:`Chain.advance`. So that changes of toxics are done when they return, whatever anybody reads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from chaosspot.schedule import draw
from chaosspot.services.proxy.toxics.pipe import (
    Answer,
    Ask,
    Chunk,
    Ending,
    Event,
    Flow,
    Give,
    Pipe,
    Take,
)
from chaosspot.services.proxy.values import Toxic

__all__ = ["Chain", "strikes"]

_Items: TypeAlias = "deque[Chunk | Event]"  # of the events, the end


def strikes(toxic: Toxic, seed: int, proxy: str, connection: int, roll: int = 1) -> bool:
    """Whether a toxic runs on a connection, by its number; ``roll`` counts the changes since."""
    return draw(seed, proxy, toxic.name, connection, "roll", roll) < toxic.toxicity


class _Stage:
    """One toxic's place in the chain, with what waits in front of it."""

    __slots__ = ("ask", "capacity", "flow", "inbox", "pipe", "rolls", "struck", "toxic")

    def __init__(self, toxic: Toxic, flow: Flow) -> None:
        self.toxic = toxic
        self.capacity = 1
        self.flow = flow
        self.inbox: _Items = deque()
        self.pipe: Pipe | None = None  # none: the toxic does not run here
        self.ask: Ask = Take()
        self.rolls = 0
        self.struck = False


class Chain:
    """The toxics of one direction.

    Args:
        toxics: those there are, in their order.
        seed: decides, with ``proxy``, the toxic's name and ``connection``, what is left to chance.
        connection: its number.
        now_s: seconds, monotonic.
        on_struck: is told the name of a toxic when it has something to do here for the first time.
    """

    def __init__(
        self,
        toxics: Iterable[Toxic] = (),
        *,
        seed: int,
        proxy: str,
        connection: int,
        now_s: float,
        on_struck: Callable[[str], object] = lambda name: None,
    ) -> None:
        self.outbox: _Items = deque()
        self.reset = False  # the connection is to be reset, now
        self.half = False  # at the end, the other direction goes on
        self.ended = False  # nothing is taken in any more
        self._identity = (seed, proxy)
        self._connection = connection
        self._now_s = now_s
        self._on_struck = on_struck
        self._stages: list[_Stage] = []
        self._live: list[_Stage] = []
        for toxic in toxics:
            self.add(toxic)

    # --- what flows ---------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing is done to what comes: it may go on as it is."""
        return not self._live and not self.outbox

    @property
    def room(self) -> bool:
        """Whether a chunk may be put in."""
        if self.ended:
            return False
        if not self._live:
            return not self.outbox
        return len(self._live[0].inbox) < self._live[0].capacity

    def put(self, data: bytes, now_s: float) -> None:
        """Put in what has just been received; nothing else happens before :meth:`advance`."""
        self._entry().append(Chunk(data=data, since_s=now_s))

    def end(self) -> None:
        """Nothing comes any more."""
        if not self.ended:
            self.ended = True
            self._entry().append(Event.END)

    @property
    def next_s(self) -> float:
        """When something happens though nothing comes; infinite if never."""
        asked = (stage.ask for stage in self._live)
        return min((ask.until_s for ask in asked if not isinstance(ask, Chunk)), default=math.inf)

    def advance(self, now_s: float) -> None:
        """Let everything happen that can by now; what leaves the chain is in ``outbox``.

        The outbox has room for one chunk: take it out and call again.
        """
        self._now_s = now_s
        moved = True
        while moved:
            moved = False
            for stage in reversed(self._live):
                if self._step(stage):
                    moved = True
                    break

    # --- changes ------------------------------------------------------------------------------

    def add(self, toxic: Toxic) -> None:
        """Append a toxic."""
        seed, proxy = self._identity
        drawing = partial(draw, seed, proxy, toxic.name, self._connection)
        stage = _Stage(toxic, Flow(lambda: self._now_s, drawing))
        self._stages.append(stage)
        self._roll(stage)

    def remove(self, name: str) -> None:
        """Take a toxic out; what it holds goes on at once."""
        stage = self._find(name)
        if stage is None:
            return
        if stage.pipe is not None:
            ending = self._interrupt(stage)
            if stage.toxic.kind.closes_when_removed:
                ending = Ending.CLOSE
            if ending is not Ending.ON:
                self._finish(stage, ending)
        if stage in self._stages:
            self._leave(stage)
            self._stages.remove(stage)

    def update(self, toxic: Toxic) -> None:
        """Change a toxic and decide anew whether it runs here; what it holds goes on at once."""
        stage = self._find(toxic.name)
        if stage is None:
            return
        if stage.pipe is not None:
            ending = self._interrupt(stage)
            if ending is not Ending.ON:
                self._finish(stage, ending)
                return
        stage.toxic = toxic
        self._roll(stage)

    def runs(self, name: str) -> bool:
        """Whether the toxic of that name runs here."""
        stage = self._find(name)
        return stage is not None and stage.pipe is not None

    def lingering(self) -> tuple[str, ...]:
        """The toxics that run here and close new connections by a reset."""
        return tuple(stage.toxic.name for stage in self._live if stage.toxic.kind.resets)

    # --- inside -------------------------------------------------------------------------------

    def _find(self, name: str) -> _Stage | None:
        return next((stage for stage in self._stages if stage.toxic.name == name), None)

    def _entry(self) -> _Items:
        return self._live[0].inbox if self._live else self.outbox

    def _onward(self, stage: _Stage) -> tuple[_Items, int]:
        """Where a stage's chunks go, and how many may wait there."""
        after = self._stages[self._stages.index(stage) + 1 :]
        following = next((other for other in after if other.pipe is not None), None)
        if following is None:
            return self.outbox, 1
        return following.inbox, following.capacity

    def _roll(self, stage: _Stage) -> None:
        """Decide whether the toxic runs here, and start or stop it."""
        stage.rolls += 1
        seed, proxy = self._identity
        if strikes(stage.toxic, seed, proxy, self._connection, stage.rolls):
            kind, attributes = stage.toxic.kind, stage.toxic.attributes
            stage.capacity = kind.capacity(attributes)
            stage.pipe = kind.pipe(attributes, stage.flow)
            stage.ask = next(stage.pipe)
        else:
            self._leave(stage)
            stage.pipe = None
        self._live = [other for other in self._stages if other.pipe is not None]

    def _leave(self, stage: _Stage) -> None:
        """Nothing waits in front of this stage any more."""
        onward, _ = self._onward(stage)
        onward.extend(stage.inbox)
        stage.inbox.clear()
        stage.pipe = None
        self._live = [other for other in self._stages if other.pipe is not None]

    def _step(self, stage: _Stage) -> bool:
        """Run one stage as far as it goes; says whether anything happened."""
        onward, capacity = self._onward(stage)
        moved = False
        while (answer := self._answer(stage, onward, capacity)) is not None:
            moved = True
            ending = self._tell(stage, answer, onward)
            if not stage.struck and _acted(answer, stage.ask, ending):
                stage.struck = True
                self._on_struck(stage.toxic.name)
            if ending is not None:
                self._finish(stage, ending)
                break
        return moved

    def _answer(self, stage: _Stage, onward: _Items, capacity: int) -> Answer | None:
        """What the stage can be told by now."""
        ask = stage.ask
        if isinstance(ask, Take) and stage.inbox:
            return stage.inbox.popleft()
        if isinstance(ask, Chunk | Give) and len(onward) < capacity:
            return Event.GIVEN
        if not isinstance(ask, Chunk) and ask.until_s <= self._now_s:
            return Event.DUE
        return None

    def _tell(self, stage: _Stage, answer: Answer, onward: _Items) -> Ending | None:
        assert stage.pipe is not None
        try:
            stage.ask = stage.pipe.send(answer)
        except StopIteration as end:
            ending: Ending = end.value
            return ending
        if isinstance(stage.ask, Chunk):
            onward.append(stage.ask)
        elif isinstance(stage.ask, Give):
            onward.append(stage.ask.chunk)
        return None

    def _interrupt(self, stage: _Stage) -> Ending:
        """Let a stage give on what it holds, room or not, and end."""
        onward, _ = self._onward(stage)
        ending = None
        while ending is None:
            given = isinstance(stage.ask, Chunk | Give)
            ending = self._tell(stage, Event.GIVEN if given else Event.INTERRUPTED, onward)
        return ending

    def _finish(self, stage: _Stage, ending: Ending) -> None:
        """The stream ends in this stage: what comes after it is its last."""
        self.ended = True
        self.half = self.half or ending is Ending.HALF
        self.reset = self.reset or ending is Ending.RESET
        onward, _ = self._onward(stage)
        onward.append(Event.END)
        del self._stages[: self._stages.index(stage) + 1]
        self._live = [other for other in self._stages if other.pipe is not None]


def _acted(answer: Answer, ask: Ask, ending: Ending | None) -> bool:
    """Whether a toxic did something: it did not give on at once, and as it was, what it was told.

    ``ask`` is what it asked for next; ``ending`` is how it ended, if it did.
    """
    if answer is Event.DUE or ending is Ending.HALF:
        return True
    if not isinstance(answer, Chunk):
        return False
    given = ask.chunk if isinstance(ask, Give) else ask
    same = given is answer or (isinstance(given, Chunk) and given == answer)
    return ending is not None or not same
