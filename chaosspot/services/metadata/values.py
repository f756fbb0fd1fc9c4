"""The values that the server and the clouds' pure cores exchange."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

__all__ = [
    "Document",
    "Instance",
    "Moment",
    "Notice",
    "Provider",
    "Request",
    "Response",
    "Settings",
    "Wait",
]


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Now, by both clocks: what happens runs by the monotonic one, what is told by the wall's."""

    now_s: float
    wall_s: float


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the metadata service knows it.

    A zone of a single letter is short for that zone of the service's region. Nodes with one
    ``group`` (a scale set) see each other's events where the cloud shows them; without one, nodes
    of one family in one zone do.
    """

    node: str
    zone: str
    family: str
    pool: str
    group: str = ""
    tags: dict[str, str] = {}

    def __post_init__(self) -> None:
        for field in ("node", "zone", "family"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value or not value.isprintable():
                raise ValueError(f"{field}={value!r}: expected a name on one line")
        if self.pool not in ("spot", "reserved"):
            raise ValueError(f"pool={self.pool!r}: expected 'spot' or 'reserved'")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the cloud has announced to nodes; its deadline never moves.

    Times without ``wall`` are monotonic. It is shown from ``visible_s`` until ``closed_s``, and
    has begun at ``starts_s``. ``resources`` are the nodes' names in the cloud. ``unarmed``: the
    cloud does not show it, since nobody had asked before. Every ``repeat_every_s`` it is told
    again as if new: that is a misbehaviour.
    """

    id: str
    action: str
    slot: str
    nodes: tuple[str, ...]
    resources: tuple[str, ...]
    visible_s: float
    starts_s: float
    issued_wall_s: float
    deadline_wall_s: float
    closed_s: float = math.inf
    withdrawn: bool = False
    unarmed: bool = False
    repeat_every_s: float = math.inf

    def shown(self, now_s: float) -> bool:
        return self.visible_s <= now_s < self.closed_s and not self.unarmed

    def repeats(self, now_s: float) -> int:
        """How often it was told again as if new."""
        if self.unarmed or now_s < self.visible_s or math.isinf(self.repeat_every_s):
            return 0
        told_s = max(0.0, min(now_s, self.closed_s) - self.visible_s)
        return int(told_s // self.repeat_every_s)

    def changes(self, now_s: float) -> int:
        """How often what is shown of it has changed until now."""
        return sum(at_s <= now_s for at_s in self._changes_s()) + self.repeats(now_s)

    def next_change_s(self, now_s: float) -> float:
        again_s = math.inf
        if self.shown(now_s) and math.isfinite(self.repeat_every_s):
            again_s = self.visible_s + (self.repeats(now_s) + 1) * self.repeat_every_s
        return min([again_s, *(at_s for at_s in self._changes_s() if at_s > now_s)])

    def _changes_s(self) -> tuple[float, ...]:
        # Closed in its first moment, it may have been seen: that counts. Before that, it does not.
        if self.unarmed or self.closed_s < self.visible_s:
            return ()
        between = (self.starts_s,) if self.visible_s < self.starts_s < self.closed_s else ()
        return (self.visible_s, *between, self.closed_s)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one cloud behaves where it may be set up in more than one way, or is not documented."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one node's answers depend on, but for the request and the time.

    ``number`` counts the nodes of the service. ``called_s`` and ``last_called_s`` are when the
    node asked, first and last, for what the cloud only prepares when asked. ``token_life_s`` is
    how long a token really lives: less than it was told only where the service misbehaves.
    """

    instance: Instance
    run: str
    number: int
    region: str
    started_wall_s: float
    settings: Settings
    token_key: bytes
    notices: tuple[Notice, ...] = ()
    called_s: float | None = None
    last_called_s: float = -math.inf
    token_life_s: float = math.inf

    def digest(self, what: str) -> bytes:
        """32 bytes that depend on the run, the node and ``what`` alone."""
        return hashlib.sha256(json.dumps([self.run, self.instance.node, what]).encode()).digest()

    def guid(self, what: str) -> str:
        text = self.digest(what).hex()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:32]}"

    @property
    def address(self) -> str:
        """The node's private address."""
        return f"10.{self.number >> 16 & 255}.{self.number >> 8 & 255}.{self.number & 255}"

    @property
    def mac(self) -> str:
        return "02:" + ":".join(f"{byte:02x}" for byte in self.digest("mac")[:5])

    def shown(self, now_s: float) -> tuple[Notice, ...]:
        """The notices that concern this node and are to be seen now."""
        name = self.instance.node
        return tuple(n for n in self.notices if name in n.nodes and n.shown(now_s))

    def next_change_s(self, now_s: float) -> float:
        return min((n.next_change_s(now_s) for n in self.notices), default=math.inf)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the cores see it: names of headers in lower case.

    ``asked_s`` is when it came, by the monotonic clock, and ``asked_notices`` are those that there
    were then (None: the present ones): one that waits is looked at again.
    """

    method: str
    path: str
    headers: dict[str, str]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    asked_s: float = 0.0
    asked_notices: tuple[Notice, ...] | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. ``tells_notice`` marks one that told its reader of a notice for its node."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    tells_notice: bool = False


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """No answer yet: look again when something has changed, or at ``until_s`` (monotonic)."""

    until_s: float = math.inf


class Provider(Protocol):
    """What a cloud's module is to the server."""

    ACTIONS: Mapping[str, str]  # what may be announced, and the slot: one notice at a time in each
    SPARING: str  # one of the actions: it takes no node
    DEFAULT_REGION: str
    Settings: Any

    def region(self, instance: Instance, *, default: str) -> str:
        """The region that the instance's zone names, else ``default``."""

    def audience(self, instance: Instance) -> str:
        """Nodes with one audience are shown the same notices."""

    def resource(self, document: Document) -> str:
        """What the cloud calls the node."""

    def environment(self, endpoint: str) -> dict[str, str]:
        """What points the cloud's clients to ``endpoint``."""

    def announced(self, notice: Notice, document: Document) -> Notice:
        """The new notice, as this cloud shows it to the node."""

    def seen(self, request: Request, document: Document, moment: Moment) -> Document:
        """The document after the request, which may have changed something."""

    def refusal(self, status: int) -> Response:
        """How the cloud's errors look."""

    def respond(self, request: Request, document: Document, moment: Moment) -> Response | Wait:
        """Answer as the real service would."""
