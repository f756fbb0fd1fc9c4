"""Proxies on the caller's event loop, under control of Python."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import msgspec

from chaosspot.services.proxy.collection import Asked, Collection
from chaosspot.services.proxy.metrics import Metrics
from chaosspot.services.proxy.values import (
    Proxy,
    ProxyError,
    Toxic,
    Traffic,
    check_name,
    toxic_of,
    upstream_of,
)

__all__ = ["ProxyService"]


class ProxyService:
    """The embedded server, a :class:`~chaosspot.services.proxy.control.ProxyControl`.

    Use it with ``async with`` on a running asyncio loop; leaving it closes every proxy. All
    methods are to be called on that loop. None of them waits for a client or a server: they are
    done at once, whatever hangs. For an HTTP control of the same proxies, see
    :class:`~chaosspot.services.proxy.api.Api`.

    Args:
        seed: decides, by hashing it with the names of the proxy and the toxic and the number of the
            connection, on which connections a toxic runs, and what else is left to chance.
        beyond_loopback: allows proxies to listen where other machines may reach them.
    """

    def __init__(self, *, seed: int = 0, beyond_loopback: bool = False) -> None:
        self.seed = seed
        self._beyond_loopback = beyond_loopback
        self.metrics = Metrics()
        self._collection: Collection | None = None

    async def __aenter__(self) -> Self:
        self._collection = Collection(
            seed=self.seed,
            beyond_loopback=self._beyond_loopback,
            link_ended=self.metrics.link_ended,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        collection, self._collection = self.collection, None
        await collection.close()

    @property
    def collection(self) -> Collection:
        """The proxies as HTTP sees them, with Toxiproxy's leniency.

        Raises:
            RuntimeError: the service has not been entered, or has been left.
        """
        if self._collection is None:
            raise RuntimeError("the proxy service is not running: use it with `async with`")
        return self._collection

    # --- proxies ------------------------------------------------------------------------------

    async def version(self) -> str:
        """What it is, for the record of a run."""
        return "embedded"

    async def create(
        self, name: str, *, upstream: str, listen: str = "127.0.0.1:0", enabled: bool = True
    ) -> Proxy:
        """A new proxy; port 0 takes any free one, and ``listen`` of what is returned says which."""
        check_name(name)
        upstream_of(upstream)
        asked = Asked(name=name, upstream=upstream, listen=listen, enabled=enabled)
        return (await self.collection.create(asked)).view()

    async def proxies(self) -> dict[str, Proxy]:
        """All there are."""
        return {gate.name: gate.view() for gate in self.collection.gates()}

    async def proxy(self, name: str) -> Proxy:
        """One of them."""
        return self.collection.get(name).view()

    def traffic(self, name: str) -> Traffic:
        """What has gone through a proxy, and which of its toxics had something to do."""
        return self.collection.get(name).traffic()

    async def update(
        self, name: str, *, listen: str | None = None, upstream: str | None = None
    ) -> Proxy:
        """Move a proxy; its connections are closed if either address is another one."""
        if upstream is not None:
            upstream_of(upstream)
        return (await self.collection.update(name, listen=listen, upstream=upstream)).view()

    async def enable(self, name: str) -> Proxy:
        """Accept connections again."""
        return (await self.collection.update(name, enabled=True)).view()

    async def disable(self, name: str) -> Proxy:
        """Refuse connections and close those there are; the port stays the proxy's."""
        return (await self.collection.update(name, enabled=False)).view()

    async def remove(self, name: str) -> None:
        """Close and forget a proxy."""
        await self.collection.remove(name)

    async def populate(self, asked: list[Asked]) -> list[Proxy]:
        """Create or move proxies, one after another; none when a name or an upstream is bad.

        Raises:
            ProxyError: also when one cannot listen; those before it are there.
        """
        for each in asked:
            check_name(each.name)
            upstream_of(each.upstream)
        done, error = await self.collection.populate(asked)
        if error is not None:
            raise ProxyError(
                f"{asked[len(done)].name}: {error} (proxy {len(done) + 1} of {len(asked)})",
                error.status,
            )
        return done

    async def reset(self) -> None:
        """Enable every proxy and remove every toxic."""
        await self.collection.reset()

    # --- toxics -------------------------------------------------------------------------------

    async def add_toxic(
        self,
        proxy: str,
        *,
        type: str,  # noqa: A002 - Toxiproxy's word
        stream: str = "downstream",
        name: str | None = None,
        toxicity: float = 1.0,
        attributes: Mapping[str, int] | None = None,
    ) -> Toxic:
        """Append a toxic; its name is TYPE_STREAM unless it is given one."""
        toxic = toxic_of(
            type=type, stream=stream, name=name, toxicity=toxicity, attributes=attributes
        )
        self.collection.add_toxic(proxy, toxic)
        return toxic

    async def update_toxic(
        self,
        proxy: str,
        name: str,
        *,
        toxicity: float | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> Toxic:
        """Change some of a toxic's attributes, or its toxicity."""
        before = self.collection.toxic(proxy, name)
        toxic = toxic_of(
            type=before.type,
            stream=before.stream,
            name=name,
            toxicity=before.toxicity if toxicity is None else toxicity,
            attributes={**msgspec.structs.asdict(before.attributes), **(attributes or {})},
        )
        self.collection.replace_toxic(proxy, toxic)
        return toxic

    async def remove_toxic(self, proxy: str, name: str) -> None:
        """Take a toxic out; what it held goes on."""
        self.collection.remove_toxic(proxy, name)
