"""Serves every node's metadata on a listener of its own, all on the caller's event loop."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeAlias

import msgspec
from aiohttp import web

from chaosspot.services.metadata import aws
from chaosspot.services.metadata.values import Document, Instance, Notice, Request

__all__ = ["MetadataService"]

_PROVIDERS = {"aws": aws}
_Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class MetadataService:
    """The metadata service of one provider.

    Use it with ``async with`` on a running asyncio loop; leaving it closes every listener.

    Args:
        provider: ``"aws"``.
        wall: seconds since the epoch; deadlines are told by it.
        monotonic: tokens expire by it.
        run: tells the instance ids of different runs apart.
        default_region: where a node is whose zone does not name a region.
        tokens_required: False lets requests without a token (IMDSv1) through.

    Raises:
        ValueError: here and from every method, for a bad value, which the message names.
    """

    def __init__(
        self,
        *,
        provider: str = "aws",
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        run: str = "",
        default_region: str = "us-east-1",
        tokens_required: bool = True,
    ) -> None:
        if provider not in _PROVIDERS:
            raise ValueError(f"provider={provider!r}: expected one of {', '.join(_PROVIDERS)}")
        self._provider = _PROVIDERS[provider]
        self._wall = wall
        self._monotonic = monotonic
        self._run = run
        self._default_region = default_region
        self._tokens_required = tokens_required
        self._nodes: dict[str, _Node] = {}
        self._entered = False

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
        for node in list(self._nodes):
            await self.remove(node)

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
        document = Document(
            instance=instance,
            instance_id=self._provider.instance_id(run=self._run, node=instance.node),
            region=self._provider.region(instance, default=self._default_region),
            started_wall_s=self._wall(),
            tokens_required=self._tokens_required,
            token_key=secrets.token_bytes(32),
        )
        node = _Node(document)
        self._nodes[instance.node] = node  # taken before the first await: two adds cannot race
        try:
            await node.listen(self._answer(node), host, port)
        except BaseException:
            del self._nodes[instance.node]
            await node.close()
            raise
        return node.endpoint

    async def remove(self, node: str) -> None:
        """Close the node's listener and forget the node, its count of reads too."""
        found = self._node(node)
        del self._nodes[node]
        await found.close()

    def publish(self, node: str, *, lead_s: float, action: str = "terminate") -> float:
        """Announce the node's interruption; return the deadline, in whole seconds of wall time.

        The deadline is fixed here, rounded down: a node that keeps it is gone in time. Announced
        again, the same action keeps its first deadline.
        """
        found = self._node(node)
        if not math.isfinite(lead_s) or lead_s < 0:
            raise ValueError(f"lead_s={lead_s!r}: expected seconds, 0 or more")
        if action not in self._provider.ACTIONS:
            known = ", ".join(self._provider.ACTIONS)
            raise ValueError(f"action={action!r}: expected one of {known}")
        notice = found.document.notice
        if notice is None:
            now_s = self._wall()
            deadline_s = float(math.floor(now_s + lead_s))
            notice = Notice(action=action, issued_wall_s=now_s, deadline_wall_s=deadline_s)
            found.document = msgspec.structs.replace(found.document, notice=notice)
        elif notice.action != action:
            raise ValueError(
                f"action={action!r}: node {node!r} already has notice of {notice.action!r}"
                f" at {notice.deadline_wall_s:.0f}; withdraw that first"
            )
        return notice.deadline_wall_s

    def withdraw(self, node: str) -> None:
        """Take the node's notice back; nothing happens when it has none."""
        found = self._node(node)
        found.document = msgspec.structs.replace(found.document, notice=None)

    def environment(self, node: str) -> dict[str, str]:
        """What points the cloud's own clients to the node's listener."""
        return {self._provider.ENDPOINT_VARIABLE: self._node(node).endpoint}

    def reads(self, node: str) -> int:
        """How often the node's notice was read."""
        return self._node(node).reads

    def _node(self, name: str) -> _Node:
        if name not in self._nodes:
            known = ", ".join(self._nodes) or "none"
            raise ValueError(f"node={name!r}: it has no listener; nodes with one: {known}")
        return self._nodes[name]

    def _answer(self, node: _Node) -> _Handler:
        async def answer(received: web.BaseRequest) -> web.StreamResponse:
            # Of repeated headers the last one counts: a known client adds a second token.
            headers = {name.lower(): value for name, value in received.headers.items()}
            request = Request(method=received.method, path=received.path, headers=headers)
            response = self._provider.respond(request, node.document, now_s=self._monotonic())
            node.reads += response.tells_notice
            return web.Response(
                status=response.status, headers=response.headers, body=response.body
            )

        return answer


class _Node:
    """One node's listener and what it serves."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.endpoint = ""
        self.reads = 0
        self._runner: web.ServerRunner | None = None

    async def listen(self, answer: _Handler, host: str, port: int) -> None:
        server = web.Server(answer, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        name = f"[{host}]" if ":" in host else host
        self.endpoint = f"http://{name}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
