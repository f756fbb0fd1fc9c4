"""A client of Toxiproxy's HTTP API, for the harness's own control of a server it is not part of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from chaosspot.services.proxy.toxics import KINDS
from chaosspot.services.proxy.values import (
    Proxy,
    ProxyError,
    Toxic,
    check_name,
    toxic_of,
    upstream_of,
)

__all__ = ["BackendError", "Client", "check_url"]

TIMEOUT_S = 10.0
_ERROR_BYTES = 300


def check_url(url: str, name: str = "url") -> None:
    """Refuse what is no base URL; users and passwords in it would be written to disk.

    Raises:
        ValueError: with ``name``, and the URL.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        good = False
    if not good or parts.username or parts.query or parts.fragment or any(c <= " " for c in url):
        raise ValueError(f"{name}={url!r}: expected http://host:port")


class BackendError(OSError):
    """The server is gone or hangs, or its answer is none: whatever it did is not known."""


class _Toxic(msgspec.Struct, frozen=True, kw_only=True):
    """A toxic as servers tell it; unknown keys are ignored."""

    name: str
    type: str
    stream: str = "downstream"
    toxicity: float = 1.0
    attributes: dict[str, int] = {}


class _Proxy(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: list[_Toxic] | None = None


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    version: str


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    error: str


class Client:
    """A :class:`~chaosspot.services.proxy.control.ProxyControl` of a server at a URL.

    Use it with ``async with``. Proxies of the environment are not used. Names that do not survive
    in a URL and upstreams that are not HOST:PORT are refused before anything is sent, and so are
    toxics that Toxiproxy does not have.

    Args:
        url: the server's base URL.
        timeout_s: for each request.

    Raises:
        ProxyError: from every method, what the server refuses with a status below 500.
        BackendError: from every method, when the server does not answer in time, cannot be
            reached, or fails.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        check_url(url)
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # --- proxies ------------------------------------------------------------------------------

    async def version(self) -> str:
        """The server's version, such as ``2.12.0``, in any of the forms that there have been."""
        body = await self._ask("GET", "/version")
        try:  # 2.6.0 wrote a backslash and an n after the object, and before there was none
            return msgspec.json.decode(body.strip().removesuffix(b"\\n"), type=_Version).version
        except msgspec.DecodeError:
            return body.decode("utf-8", "replace").strip()

    async def create(
        self, name: str, *, upstream: str, listen: str = "127.0.0.1:0", enabled: bool = True
    ) -> Proxy:
        """A new proxy; port 0 takes any free one, and ``listen`` of what is returned says which."""
        check_name(name)
        upstream_of(upstream)
        given = {"name": name, "upstream": upstream, "listen": listen, "enabled": enabled}
        return _proxy(await self._tell("POST", "/proxies", given, _Proxy))

    async def proxies(self) -> dict[str, Proxy]:
        """All there are."""
        found = await self._tell("GET", "/proxies", None, dict[str, _Proxy])
        return {name: _proxy(each) for name, each in found.items()}

    async def metrics(self) -> str:
        """Its counters, in Prometheus' text format; ProxyError, 404, if it keeps none."""
        return (await self._ask("GET", "/metrics")).decode("utf-8", "replace")

    async def names(self) -> list[str]:
        """What all of them are called, whatever toxics they have."""
        return list(await self._tell("GET", "/proxies", None, dict[str, Any]))

    async def proxy(self, name: str) -> Proxy:
        """One of them."""
        return _proxy(await self._tell("GET", _path(name), None, _Proxy))

    async def update(
        self, name: str, *, listen: str | None = None, upstream: str | None = None
    ) -> Proxy:
        """Move a proxy; its connections are closed if either address is another one."""
        given = {}
        if listen is not None:
            given["listen"] = listen
        if upstream is not None:
            upstream_of(upstream)
            given["upstream"] = upstream
        return _proxy(await self._tell("POST", _path(name), given, _Proxy))

    async def enable(self, name: str) -> Proxy:
        """Accept connections again."""
        return _proxy(await self._tell("POST", _path(name), {"enabled": True}, _Proxy))

    async def disable(self, name: str) -> Proxy:
        """Refuse connections and close those there are."""
        return _proxy(await self._tell("POST", _path(name), {"enabled": False}, _Proxy))

    async def remove(self, name: str) -> None:
        """Close and forget a proxy."""
        await self._ask("DELETE", _path(name))

    async def reset(self) -> None:
        """Enable every proxy and remove every toxic."""
        await self._ask("POST", "/reset")

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
        if type in KINDS and KINDS[type].own:
            raise ProxyError(f"type={type!r}: only the embedded proxy has it")
        toxic = toxic_of(
            type=type, stream=stream, name=name, toxicity=toxicity, attributes=attributes
        )
        given = {
            "name": toxic.name,
            "type": toxic.type,
            "stream": toxic.stream,
            "toxicity": toxicity,
            "attributes": msgspec.structs.asdict(toxic.attributes),
        }
        return _toxic(await self._tell("POST", f"{_path(proxy)}/toxics", given, _Toxic))

    async def update_toxic(
        self,
        proxy: str,
        name: str,
        *,
        toxicity: float | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> Toxic:
        """Change some of a toxic's attributes, or its toxicity."""
        path = _path(proxy, name)
        before = _toxic(await self._tell("GET", path, None, _Toxic))
        after = toxic_of(
            type=before.type,
            stream=before.stream,
            name=name,
            toxicity=before.toxicity if toxicity is None else toxicity,
            attributes={**msgspec.structs.asdict(before.attributes), **(attributes or {})},
        )
        given: dict[str, Any] = {"attributes": msgspec.structs.asdict(after.attributes)}
        given["toxicity"] = before.toxicity if toxicity is None else toxicity
        return _toxic(await self._tell("POST", path, given, _Toxic))

    async def remove_toxic(self, proxy: str, name: str) -> None:
        """Take a toxic out; what it held goes on."""
        await self._ask("DELETE", _path(proxy, name))

    # --- inside -------------------------------------------------------------------------------

    async def _tell(self, method: str, path: str, given: object, into: Any) -> Any:
        body = await self._ask(method, path, given)
        try:
            return msgspec.json.decode(body, type=into)
        except msgspec.DecodeError as error:
            raise BackendError(f"{method} {self.url}{path}: not Toxiproxy's: {error}") from error

    async def _ask(self, method: str, path: str, given: object = None) -> bytes:
        if self._session is None:
            raise RuntimeError("the client is not open: use it with `async with`")
        where = f"{method} {self.url}{path}"
        data = None if given is None else msgspec.json.encode(given)
        headers = {} if data is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=headers, allow_redirects=False
            ) as answer:
                body = await answer.read()
        except asyncio.TimeoutError as error:  # noqa: UP041 - aiohttp's is one of these
            raise BackendError(f"{where}: backend hung for {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise BackendError(f"{where}: {error}") from error
        if 200 <= answer.status < 300:
            return body
        try:
            why = msgspec.json.decode(body, type=_Error).error
        except msgspec.DecodeError:
            why = body[:_ERROR_BYTES].decode("utf-8", "replace").strip()
        if 400 <= answer.status < 500:
            raise ProxyError(why or f"{where}: {answer.status}", answer.status)
        raise BackendError(f"{where}: {answer.status} {why}")


def _path(proxy: str, toxic: str | None = None) -> str:
    check_name(proxy)
    if toxic is None:
        return f"/proxies/{quote(proxy, safe='')}"
    check_name(toxic)
    return f"/proxies/{quote(proxy, safe='')}/toxics/{quote(toxic, safe='')}"


def _proxy(told: _Proxy) -> Proxy:
    return Proxy(
        name=told.name,
        listen=told.listen,
        upstream=told.upstream,
        enabled=told.enabled,
        toxics=tuple(_toxic(toxic) for toxic in told.toxics or ()),
    )


def _toxic(told: _Toxic) -> Toxic:
    if told.type not in KINDS:
        raise BackendError(f"toxic {told.name!r} is of an unknown type: {told.type!r}")
    try:
        attributes = msgspec.convert(told.attributes, KINDS[told.type].attributes)
    except msgspec.ValidationError as error:
        raise BackendError(f"toxic {told.name!r}: {error}") from error
    return Toxic(
        name=told.name,
        type=told.type,
        stream=told.stream,
        toxicity=told.toxicity,
        attributes=attributes,
    )
