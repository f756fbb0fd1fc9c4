"""How proxies are controlled, whichever server they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from chaosspot.services.proxy.values import Proxy, Toxic

__all__ = ["ProxyControl"]


class ProxyControl(Protocol):
    """What the embedded server and the real one can both be told.

    Names are of letters, digits, "_", "." and "-"; an upstream is HOST:PORT.

    Raises:
        ProxyError: from every method that cannot do as told; then nothing has changed.
    """

    async def version(self) -> str:
        """What it is, for the record of a run."""

    async def create(
        self, name: str, *, upstream: str, listen: str = "127.0.0.1:0", enabled: bool = True
    ) -> Proxy:
        """A new proxy; port 0 takes any free one, and ``listen`` of what is returned says which."""

    async def proxies(self) -> dict[str, Proxy]:
        """All there are."""

    async def proxy(self, name: str) -> Proxy:
        """One of them."""

    async def update(
        self, name: str, *, listen: str | None = None, upstream: str | None = None
    ) -> Proxy:
        """Move a proxy; its connections are closed if either address is another one."""

    async def enable(self, name: str) -> Proxy:
        """Accept connections again."""

    async def disable(self, name: str) -> Proxy:
        """Refuse connections and close those there are."""

    async def remove(self, name: str) -> None:
        """Close and forget a proxy."""

    async def reset(self) -> None:
        """Enable every proxy and remove every toxic."""

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

    async def update_toxic(
        self,
        proxy: str,
        name: str,
        *,
        toxicity: float | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> Toxic:
        """Change some of a toxic's attributes, or its toxicity."""

    async def remove_toxic(self, proxy: str, name: str) -> None:
        """Take a toxic out; what it held goes on."""
