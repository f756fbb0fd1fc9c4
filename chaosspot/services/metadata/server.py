"""Serves every node's metadata on a listener of its own, all on the caller's event loop."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

import msgspec

from chaosspot import misbehaviour as m
from chaosspot.services.listener import Bind
from chaosspot.services.metadata import aws, azure, board, gcp
from chaosspot.services.metadata.misbehaving import Active
from chaosspot.services.metadata.misconduct import Misconduct
from chaosspot.services.metadata.node import Node
from chaosspot.services.metadata.values import (
    Document,
    Instance,
    Moment,
    Notice,
    Provider,
    Settings,
)

__all__ = ["PROVIDERS", "MetadataService"]

PROVIDERS: dict[str, Provider] = {"aws": aws, "gcp": gcp, "azure": azure}
LEAD_MAX_S = 86400.0
_NAMED = 10  # nodes that an error lists


class MetadataService:
    """The metadata service of one provider.

    Use it with ``async with`` on a running asyncio loop; leaving it closes every listener. All
    methods are to be called on that loop.

    Args:
        provider: ``"aws"``, ``"gcp"`` or ``"azure"``.
        settings: how that cloud is set up; an ``AwsSettings``, ``GcpSettings``, ``AzureSettings``.
        wall: seconds since the epoch; deadlines are told by it.
        monotonic: tokens expire and events begin by it.
        run: tells the instance ids of different runs apart.
        default_region: where a node is whose zone does not name a region; None: the cloud's own.

    Raises:
        ValueError: here and from every method, for a bad value, which the message names. Then
            nothing has changed.
    """

    def __init__(
        self,
        *,
        provider: str = "aws",
        settings: Settings | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        run: str = "",
        default_region: str | None = None,
    ) -> None:
        if provider not in PROVIDERS:
            raise ValueError(f"provider={provider!r}: expected one of {', '.join(PROVIDERS)}")
        self._provider = PROVIDERS[provider]
        self._settings = self._provider.Settings() if settings is None else settings
        if not isinstance(self._settings, self._provider.Settings):
            kind = type(self._settings).__name__
            raise ValueError(f"settings={kind}: not those of provider={provider!r}")
        self._wall = wall
        self._monotonic = monotonic
        self._run = run
        self._default_region = default_region or self._provider.DEFAULT_REGION
        self._nodes: dict[str, Node] = {}
        self._numbered: dict[str, int] = {}  # all nodes there ever were
        self._audiences: dict[str, dict[str, Node]] = {}
        self._boards: dict[str, tuple[Notice, ...]] = {}  # by audience
        self._counts = {"node": 0, "notice": 0}
        self._entered = False
        limits = []
        if isinstance(self._settings, azure.Settings) and self._settings.requests_per_s is not None:
            limits.append(m.Status(status=429, above_per_s=self._settings.requests_per_s))
        self._misconduct = Misconduct(monotonic, always=limits)

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered = False
        await self._misconduct.end()
        nodes, self._nodes = list(self._nodes.values()), {}
        await asyncio.gather(*(node.listener.close() for node in nodes))

    # --- nodes ------------------------------------------------------------------------------

    async def add(self, instance: Instance, *, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the node's listener and return its endpoint; port 0 takes any free port.

        Raises:
            OSError: the address cannot be bound.
            RuntimeError: the service has not been entered, or has been left.
        """
        if not self._entered:
            raise RuntimeError("the metadata service is not running: use it with `async with`")
        if instance.node in self._nodes:
            raise ValueError(f"node={instance.node!r}: it already has a listener")
        audience = self._provider.audience(instance)
        number = self._numbered.get(instance.node)  # who comes again is who it was
        if number is None:
            number = self._counts["node"]
            self._counts["node"] += 1
        document = Document(
            instance=instance,
            run=self._run,
            number=number,
            region=self._provider.region(instance, default=self._default_region),
            started_wall_s=self._wall(),
            settings=self._settings,
            token_key=secrets.token_bytes(32),
            notices=self._boards.get(audience, ()),
        )
        node = Node(document, self._provider, self._misconduct.active, self._moment, self._noticed)
        self._nodes[instance.node] = node  # taken before the first await: two adds cannot race
        try:
            await node.listener.open(host, port)
        except BaseException:
            del self._nodes[instance.node]
            await node.listener.close()
            raise
        self._numbered[instance.node] = number
        self._audiences.setdefault(audience, {})[instance.node] = node
        return node.listener.endpoint

    async def move(self, node: str, *, host: str, port: int, bind: Bind) -> None:
        """Serve the node at another address, on a socket that ``bind`` makes; it stays who it is.

        Raises:
            OSError: the address cannot be bound.
        """
        await self._node(node).listener.move(host, port, bind=bind)

    async def remove(self, node: str) -> None:
        """Close the node's listener and forget the node, its count of reads too.

        Its notices end with it; where others see them, they go on for the others that they are
        for.
        """
        found = self._node(node)
        self._close(node, None, withdrawn=False)
        del self._nodes[node]
        del self._audiences[self._audience(found)][node]
        await found.listener.close()

    def nodes(self) -> tuple[str, ...]:
        """The nodes that have a listener, in the order they came."""
        return tuple(self._nodes)

    def endpoint(self, node: str) -> str:
        """The node's base URL."""
        return self._node(node).listener.endpoint

    def environment(self, node: str, at: str | None = None) -> dict[str, str]:
        """What points the cloud's own clients to the node's listener, or to the HOST:PORT ``at``
        by which they reach it."""
        endpoint = self._node(node).listener.endpoint if at is None else f"http://{at}"
        return self._provider.environment(endpoint)

    def reads(self, node: str) -> int:
        """How often the node was told of a notice of its own."""
        return self._node(node).reads

    def requests(self, node: str) -> int:
        """How many requests the node has made."""
        return self._node(node).requests

    # --- notices ----------------------------------------------------------------------------

    @property
    def sparing(self) -> str:
        """An action of this cloud that takes no node."""
        return self._provider.SPARING

    def publish(
        self,
        node: str,
        *,
        lead_s: float,
        action: str | None = None,
        lasts_s: float | None = None,
    ) -> float:
        """Announce something to the node; return the deadline, in whole seconds of wall time.

        The deadline is fixed here, rounded down: a node that keeps it is gone in time. Announced
        again, the same action keeps its first deadline.

        Args:
            lead_s: seconds from now to the deadline, at most a day.
            action: what is announced; by default the cloud's usual way to take a node.
            lasts_s: how long after the deadline it is over; None: when it is ended.
        """
        return self.publish_all([node], lead_s=lead_s, action=action, lasts_s=lasts_s)[node]

    def publish_all(
        self,
        nodes: Iterable[str],
        *,
        lead_s: float,
        action: str | None = None,
        lasts_s: float | None = None,
    ) -> dict[str, float]:
        """Announce one thing to several nodes in the same moment; return each node's deadline.

        See :meth:`publish`. Azure makes one event of it for each scale set.
        """
        moment = self._moment()
        names = dict.fromkeys(nodes)
        found = {name: self._node(name) for name in names}
        if not names:
            raise ValueError("nodes=[]: expected at least one")
        if not 0 <= lead_s <= LEAD_MAX_S:
            raise ValueError(f"lead_s={lead_s!r}: expected seconds, 0 to {LEAD_MAX_S:.0f}")
        if lasts_s is not None and not (math.isfinite(lasts_s) and lasts_s > 0):
            raise ValueError(f"lasts_s={lasts_s!r}: expected seconds above 0")
        action = self._known(action) or next(iter(self._provider.ACTIONS))
        documents = [node.document for node in found.values()]
        together: dict[str, list[Document]] = {}
        for document in board.without(documents, action, self._provider, moment):
            audience = self._provider.audience(document.instance)
            together.setdefault(audience, []).append(document)
        for audience, group in together.items():
            self._counts["notice"] += 1
            notice = board.announce(
                group,
                self._provider,
                moment,
                number=self._counts["notice"],
                action=action,
                lead_s=lead_s,
                lasts_s=lasts_s,
            )
            self._show(audience, (*self._boards.get(audience, ()), notice))
        deadlines = {}
        for name, node in found.items():
            notice, *_ = board.open_notices(node.document.notices, name, moment.now_s, action)
            deadlines[name] = notice.deadline_wall_s
        return deadlines

    def withdraw(self, node: str, action: str | None = None) -> None:
        """Take the node's notices back, or that of one action; nothing happens without any."""
        self._close(node, self._known(action), withdrawn=True)

    def end(self, node: str, action: str | None = None) -> None:
        """What was announced to the node is over: no notice is shown any more."""
        self._close(node, self._known(action), withdrawn=False)

    def notices(self, node: str) -> tuple[Notice, ...]:
        """The node's notices that are neither withdrawn nor over."""
        found = self._node(node)
        return board.open_notices(found.document.notices, node, self._monotonic())

    # --- misbehaviour -------------------------------------------------------------------------

    def misbehave(self, what: m.MisbehaviourKind) -> int:
        """Misbehave from now on; returns the number under which to stop it.

        Requests that wait for a change are struck as if they came now.
        """
        if isinstance(what, m.TokenKill):
            self._must_have_tokens()
        number = self._misconduct.start(what, self._nodes)
        for node in self._nodes.values():
            node.stir()
        return number

    def struck(self, node: str, number: int) -> int:
        """How many of the node's requests the misbehaviour with that number has struck."""
        return self._node(node).struck(number)

    async def behave(self, number: int) -> None:
        """Stop a misbehaviour; closed listeners are open again when this returns."""
        await self._misconduct.stop(number)

    def misbehaviours(self) -> tuple[Active, ...]:
        """Those in force, each with its number."""
        return self._misconduct.in_force()

    def kill_tokens(self, node: str) -> None:
        """AWS: every token of the node that there is becomes an unknown one."""
        self._must_have_tokens()
        found = self._node(node)
        found.document = msgspec.structs.replace(found.document, token_key=secrets.token_bytes(32))

    # --- inside -----------------------------------------------------------------------------

    def _moment(self) -> Moment:
        return Moment(now_s=self._monotonic(), wall_s=self._wall())

    def _node(self, name: str) -> Node:
        if name not in self._nodes and name in self._numbered:
            raise ValueError(f"node={name!r}: it is gone")
        if name not in self._nodes:
            known = ", ".join([*self._nodes][:_NAMED]) or "none"
            more = ", ..." if len(self._nodes) > _NAMED else ""
            raise ValueError(f"node={name!r}: it has no listener; nodes with one: {known}{more}")
        return self._nodes[name]

    def _known(self, action: str | None) -> str | None:
        if action is not None and action not in self._provider.ACTIONS:
            known = ", ".join(self._provider.ACTIONS)
            raise ValueError(f"action={action!r}: expected one of {known}")
        return action

    def _must_have_tokens(self) -> None:
        if self._provider is not PROVIDERS["aws"]:
            raise ValueError("only provider='aws' has tokens that can be killed")

    def _audience(self, node: Node) -> str:
        return self._provider.audience(node.document.instance)

    def _close(self, name: str, action: str | None, *, withdrawn: bool) -> None:
        node, now_s = self._node(name), self._monotonic()
        before = node.document.notices
        if board.open_notices(before, name, now_s, action):
            after = board.close(before, name, now_s, action=action, withdrawn=withdrawn)
            self._show(self._audience(node), after)

    def _noticed(self, document: Document) -> None:
        """A request has changed the notices that the node's audience sees."""
        self._show(self._provider.audience(document.instance), document.notices)

    def _show(self, audience: str, notices: tuple[Notice, ...]) -> None:
        self._boards[audience] = notices
        for node in self._audiences[audience].values():
            node.show(notices)
