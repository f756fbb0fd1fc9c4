"""Toxiproxy's HTTP API: its paths, statuses, bodies and content types, as of version 2.12.

Where it differs on purpose is listed in the table of suites/README.md.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec
from aiohttp import web

from chaosspot.services.proxy import gojson
from chaosspot.services.proxy.collection import Asked
from chaosspot.services.proxy.gojson import Object
from chaosspot.services.proxy.service import ProxyService
from chaosspot.services.proxy.toxics import KINDS, Attributes
from chaosspot.services.proxy.values import Proxy, ProxyError, Toxic
from chaosspot.services.served import Served

__all__ = ["VERSION", "Api"]

VERSION = "2.12.0"  # whose API this is: clients ask
_BODY_MAX_BYTES = 1 << 20
_BODY_S = 15.0
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"

_Acts: TypeAlias = dict[str, Callable[..., Awaitable[web.Response]]]


class Api(Served):
    """Serves the API of ``service``; use with ``async with`` inside that of the service.

    Args:
        metrics: serve /metrics, too.
    """

    def __init__(
        self,
        service: ProxyService,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        metrics: bool = False,
    ) -> None:
        self._service = service
        self._metrics = metrics
        super().__init__(self._answer, host=host, port=port)

    # --- HTTP ---------------------------------------------------------------------------------

    async def _answer(self, received: web.BaseRequest) -> web.StreamResponse:
        raw = received.raw_path.partition("?")[0]
        if "//" in raw:
            return web.Response(status=301, headers={"Location": re.sub("/+", "/", raw)})
        names, methods = self._route(unquote(raw))
        if methods is None:
            return _plain(404, "404 page not found\n")
        act = methods.get(received.method) or methods.get("ANY")
        if act is None:
            return _bare(405)
        if received.headers.get("User-Agent", "").startswith("Mozilla/"):
            answer = _plain(403, "User agent not allowed\n")
        else:
            try:
                answer = await act(await _body(received), *names)
            except ProxyError as error:
                text = gojson.encode({"error": str(error), "status": error.status}) + b"\n"
                answer = _plain(error.status, text.decode())
        answer.headers["X-Toxiproxy-Request-Id"] = secrets.token_hex(10)
        return answer

    def _route(self, path: str) -> tuple[list[str], _Acts | None]:
        """The names in a path, and what each method does there; None if there is no such path."""
        match path.split("/")[1:]:
            case ["version"]:
                return [], {"GET": self._version}
            case ["metrics"] if self._metrics:
                return [], {"ANY": self._told}
            case ["reset"]:
                return [], {"POST": self._reset}
            case ["populate"]:
                return [], {"POST": self._populate}
            case ["proxies"]:
                return [], {"GET": self._proxies, "POST": self._create}
            case ["proxies", proxy] if proxy:
                both: _Acts = {"POST": self._update, "PATCH": self._update}
                return [proxy], {**both, "GET": self._proxy, "DELETE": self._remove}
            case ["proxies", proxy, "toxics"] if proxy:
                return [proxy], {"GET": self._toxics, "POST": self._add_toxic}
            case ["proxies", proxy, "toxics", toxic] if proxy and toxic:
                both = {"POST": self._update_toxic, "PATCH": self._update_toxic}
                return [proxy, toxic], {
                    **both,
                    "GET": self._toxic,
                    "DELETE": self._remove_toxic,
                }
        return [], None

    # --- what the paths do --------------------------------------------------------------------

    async def _version(self, body: bytes) -> web.Response:
        text = f'{{"version": "{VERSION}"}}\n'
        return _bytes(200, text.encode(), "application/json;charset=utf-8")

    async def _told(self, body: bytes) -> web.Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return _bytes(200, self._service.metrics.text().encode(), kind)

    async def _reset(self, body: bytes) -> web.Response:
        await self._service.collection.reset()
        return _bare(204)

    async def _proxies(self, body: bytes) -> web.Response:
        gates = self._service.collection.gates()
        return _json(200, {gate.name: _proxy(gate.view()) for gate in gates})

    async def _create(self, body: bytes) -> web.Response:
        asked = _asked(_object(body, "toxiproxy.Proxy"))
        for name in ("name", "upstream"):
            if not getattr(asked, name):
                raise ProxyError(f"missing required field: {name}")
        gate = await self._service.collection.create(asked)
        return _json(201, _proxy(gate.view()))

    async def _proxy(self, body: bytes, proxy: str) -> web.Response:
        return _json(200, _proxy(self._service.collection.get(proxy).view()))

    async def _update(self, body: bytes, proxy: str) -> web.Response:
        collection = self._service.collection
        collection.get(proxy)
        given = _object(body, "toxiproxy.Proxy")
        gate = await collection.update(
            proxy,
            listen=_get(given, "listen", "string", None, "Proxy"),
            upstream=_get(given, "upstream", "string", None, "Proxy"),
            enabled=_get(given, "enabled", "bool", None, "Proxy"),
        )
        return _json(200, _proxy(gate.view()))

    async def _remove(self, body: bytes, proxy: str) -> web.Response:
        await self._service.collection.remove(proxy)
        return _bare(204)

    async def _populate(self, body: bytes) -> web.Response:
        try:
            done, error = await self._service.collection.populate(_list(body))
        except ProxyError as bad:
            done, error = [], bad
        status = 201 if error is None else error.status
        told: dict[str, Any] = {} if error is None else {"error": str(error), "status": status}
        return _json(status, {**told, "proxies": [_proxy(view) for view in done] or None})

    async def _toxics(self, body: bytes, proxy: str) -> web.Response:
        view = self._service.collection.get(proxy).view()
        return _json(200, [_toxic(toxic) for toxic in view.toxics])

    async def _add_toxic(self, body: bytes, proxy: str) -> web.Response:
        collection = self._service.collection
        known = {toxic.name for toxic in collection.get(proxy).toxics}
        given = _object(body, "toxics.ToxicWrapper")
        name = _get(given, "name", "string", "", "ToxicWrapper")
        kind = _get(given, "type", "string", "", "ToxicWrapper")
        stream = _get(given, "stream", "string", "downstream", "ToxicWrapper")
        toxicity = _get(given, "toxicity", "float32", 1.0, "ToxicWrapper")
        if stream.lower() not in ("upstream", "downstream"):
            raise ProxyError("stream was invalid, can be either upstream or downstream")
        if kind not in KINDS:
            raise ProxyError("invalid toxic type")
        name = name or f"{kind}_{stream}"
        if name in known:
            raise ProxyError("toxic already exists", 409)
        toxic = Toxic(
            name=name,
            type=kind,
            stream=stream,
            toxicity=toxicity,
            attributes=_attributes(given, KINDS[kind].attributes, {}),
        )
        collection.add_toxic(proxy, toxic)
        return _json(200, _toxic(toxic))

    async def _toxic(self, body: bytes, proxy: str, name: str) -> web.Response:
        return _json(200, _toxic(self._service.collection.toxic(proxy, name)))

    async def _update_toxic(self, body: bytes, proxy: str, name: str) -> web.Response:
        before = self._service.collection.toxic(proxy, name)
        given = _object(body, "toxics.ToxicWrapper")
        present = msgspec.structs.asdict(before.attributes)
        toxic = msgspec.structs.replace(
            before,
            toxicity=_get(given, "toxicity", "float32", before.toxicity, ""),
            attributes=_attributes(given, before.kind.attributes, present),
        )
        self._service.collection.replace_toxic(proxy, toxic)
        return _json(200, _toxic(toxic))

    async def _remove_toxic(self, body: bytes, proxy: str, name: str) -> web.Response:
        self._service.collection.remove_toxic(proxy, name)
        return _bare(204)


# --- what is asked for ------------------------------------------------------------------------


async def _body(received: web.BaseRequest) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            while chunk := await received.content.readany():
                body += chunk
                if len(body) > _BODY_MAX_BYTES:
                    raise ProxyError("bad request body: it is too long")
    except TimeoutError:
        raise ProxyError("bad request body: i/o timeout") from None
    return bytes(body)


def _object(body: bytes, kind: str) -> Object:
    try:
        return gojson.as_object(gojson.decode(body), kind)
    except ValueError as error:
        raise ProxyError(f"bad request body: {error}") from None


def _get(given: Object, name: str, into: str, default: Any, where: str) -> Any:
    try:
        return gojson.get(given, name, into, default, where)
    except ValueError as error:
        raise ProxyError(f"bad request body: {error}") from None


def _asked(given: Object) -> Asked:
    return Asked(
        name=_get(given, "name", "string", "", "Proxy"),
        upstream=_get(given, "upstream", "string", "", "Proxy"),
        listen=_get(given, "listen", "string", "", "Proxy"),
        enabled=_get(given, "enabled", "bool", True, "Proxy"),
    )


def _list(body: bytes) -> list[Asked]:
    try:
        found = gojson.decode(body)
        if found is not None and not isinstance(found, list):
            gojson.as_object(found, "[]toxiproxy.Proxy")
            raise ValueError(
                "json: cannot unmarshal object into Go value of type []toxiproxy.Proxy"
            )
        given = [gojson.as_object(item, "toxiproxy.Proxy") for item in found or []]
    except ValueError as error:
        raise ProxyError(f"bad request body: {error}") from None
    asked = [_asked(item) for item in given]
    for number, each in enumerate(asked, 1):
        for name in ("name", "upstream"):
            if not getattr(each, name):
                raise ProxyError(f"missing required field: {name} at proxy {number}")
    return asked


def _attributes(given: Object, kind: type[Attributes], present: dict[str, int]) -> Attributes:
    """The attributes, with what is not given as it is present; every one is a whole number."""
    found = _get(given, "attributes", "any", None, "")
    try:
        fields = gojson.as_object(found, f"toxics.{kind.__name__}Toxic")
        values = {
            name: gojson.get(fields, name, "int64", present.get(name, 0), ".attributes")
            for name in kind.__struct_fields__
        }
        return kind(**values)
    except ValueError as error:
        raise ProxyError(f"bad request body: {error}") from None


# --- what is answered -------------------------------------------------------------------------


def _proxy(view: Proxy) -> dict[str, Any]:
    return {
        "name": view.name,
        "listen": view.listen,
        "upstream": view.upstream,
        "enabled": view.enabled,
        "toxics": [_toxic(toxic) for toxic in view.toxics],
    }


def _toxic(toxic: Toxic) -> dict[str, Any]:
    return {
        "attributes": msgspec.structs.asdict(toxic.attributes),
        "name": toxic.name,
        "type": toxic.type,
        "stream": toxic.stream,
        "toxicity": gojson.float32(toxic.toxicity),
    }


def _json(status: int, told: object) -> web.Response:
    return _bytes(status, gojson.encode(told), _JSON)


def _plain(status: int, text: str) -> web.Response:
    answer = _bytes(status, text.encode(), _TEXT)
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


def _bytes(status: int, body: bytes, kind: str) -> web.Response:
    return web.Response(status=status, body=body, headers={"Content-Type": kind})


def _bare(status: int) -> web.Response:
    return web.Response(status=status)
