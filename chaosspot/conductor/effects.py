"""Whether toxics had an effect on what went through a proxy, by what its server lets us know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from chaosspot.schedule import Toxic
from chaosspot.services.proxy import Client, ProxyControl, ProxyService
from chaosspot.services.proxy.passed import Passed, passed

__all__ = ["Effects", "effects_of"]


class Effects(Protocol):
    """Of toxics that are put on proxies under one number."""

    async def begin(self, proxy: str, number: int) -> None:
        """They are on that proxy from now on."""

    async def struck(
        self, proxy: str, number: int, toxics: Mapping[str, Toxic], *, cuts: bool
    ) -> bool:
        """Whether they have had one since; with ``cuts`` nothing can pass while they are there."""


def effects_of(control: ProxyControl) -> Effects:
    """For the server that is so controlled."""
    if isinstance(control, ProxyService):
        return _Told(control)
    assert isinstance(control, Client)
    return _Seen(control)


class _Told:
    """The embedded proxy tells on how many connections a toxic had something to do; and where
    nothing is to pass, it is enough that there is a connection and that nothing has."""

    def __init__(self, service: ProxyService) -> None:
        self._service = service
        self._before: dict[tuple[str, int], int] = {}

    async def begin(self, proxy: str, number: int) -> None:
        self._before[proxy, number] = self._bytes(proxy)

    async def struck(
        self, proxy: str, number: int, toxics: Mapping[str, Toxic], *, cuts: bool
    ) -> bool:
        traffic = self._service.traffic(proxy)
        if any(traffic.struck.get(name) for name in toxics):
            return True
        return cuts and traffic.open > 0 and self._bytes(proxy) == self._before[proxy, number]

    def _bytes(self, proxy: str) -> int:
        traffic = self._service.traffic(proxy)
        return traffic.upstream_bytes + traffic.downstream_bytes


class _Seen:
    """The real server does not tell what a toxic did: only that something came to where it was,
    or, where nothing is to pass, that there is a connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listens: dict[str, str] = {}
        self._before: dict[tuple[str, int], Passed] = {}

    async def begin(self, proxy: str, number: int) -> None:
        self._listens[proxy] = (await self._client.proxy(proxy)).listen
        self._before[proxy, number] = await self._now(proxy)

    async def struck(
        self, proxy: str, number: int, toxics: Mapping[str, Toxic], *, cuts: bool
    ) -> bool:
        if all(toxic.toxicity == 0 for toxic in toxics.values()):
            return False
        now = await self._now(proxy)
        return now.since(self._before[proxy, number]) or (cuts and bool(now.open))

    async def _now(self, proxy: str) -> Passed:
        return passed(proxy, self._listens[proxy], await self._client.metrics())
