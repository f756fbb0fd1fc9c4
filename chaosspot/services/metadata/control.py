"""The service's HTTP control: JSON in, JSON out, on a loopback address of its own.

==========================  =====================================================================
GET /nodes                  every node: its name, endpoint, environment, requests, reads, notices
GET /misbehaviours          those in force, with their numbers
POST /notices               {"nodes", "lead_s", "action"?, "lasts_s"?} -> {"deadlines"}
POST /notices/withdraw      {"nodes", "action"?}: taken back -> {"closed"}, by node
POST /notices/end           {"nodes", "action"?}: over -> {"closed"}, by node
POST /misbehaviours         {"kind", ...} as in a schedule -> {"number"}
DELETE /misbehaviours/N     stopped
POST /tokens/kill           {"nodes"}: every token there is becomes an unknown one (AWS)
==========================  =====================================================================

``nodes`` is a list of names, or ``"all"``. What cannot be done is answered with 400 and
``{"error"}``, and nothing has changed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from aiohttp import web

from chaosspot.misbehaviour import MisbehaviourKind
from chaosspot.services.metadata.server import MetadataService
from chaosspot.services.served import Served

__all__ = ["Control"]

_BODY_MAX_BYTES = 1 << 20
_BODY_S = 10.0


class _Nodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    nodes: tuple[str, ...] | Literal["all"]


class _Closing(_Nodes, frozen=True, kw_only=True):
    action: str | None = None


class _Publish(_Nodes, frozen=True, kw_only=True):
    lead_s: float
    action: str | None = None
    lasts_s: float | None = None


class _NotThere(Exception):
    """No such path."""


class _NotSo(Exception):
    """Another method is needed."""


class Control(Served):
    """Serves the control of ``service``; use with ``async with`` inside that of the service."""

    def __init__(self, service: MetadataService, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._service = service
        super().__init__(self._answer, host=host, port=port)

    async def _answer(self, received: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in received.headers:  # a page in somebody's browser
            return _json(403, {"error": "requests of web pages are not served"})
        try:
            body = await _body(received)
            told = await self._act(received.method, received.path.rstrip("/"), body)
        except _NotThere:
            return _json(404, {"error": f"no such path: {received.path}"})
        except _NotSo:
            return _json(405, {"error": f"method {received.method} is not for {received.path}"})
        except (ValueError, TimeoutError) as error:
            return _json(400, {"error": str(error) or "the body did not come to its end"})
        return _json(200, told)

    async def _act(self, method: str, path: str, body: bytes) -> object:
        service = self._service
        match [method, *path.split("/")[1:]]:
            case ["GET", "nodes"]:
                return {"nodes": [self._node(node) for node in service.nodes()]}
            case ["GET", "misbehaviours"]:
                return {"misbehaviours": [_active(entry) for entry in service.misbehaviours()]}
            case ["POST", "notices"]:
                asked = _decoded(body, _Publish)
                deadlines = service.publish_all(
                    self._named(asked),
                    lead_s=asked.lead_s,
                    action=asked.action,
                    lasts_s=asked.lasts_s,
                )
                return {"deadlines": deadlines}
            case ["POST", "notices", "withdraw" | "end" as how]:
                closing = _decoded(body, _Closing)
                names = self._named(closing)
                close = service.withdraw if how == "withdraw" else service.end
                closed = {}
                for node in names:
                    before = [notice.action for notice in service.notices(node)]
                    close(node, closing.action)
                    left = [notice.action for notice in service.notices(node)]
                    closed[node] = [action for action in before if action not in left]
                return {"closed": closed}
            case ["POST", "misbehaviours"]:
                what: MisbehaviourKind = _decoded(body, MisbehaviourKind)
                return {"number": service.misbehave(what)}
            case ["DELETE", "misbehaviours", number] if number.isdecimal():
                await service.behave(int(number[:9]))
                return {}
            case ["POST", "tokens", "kill"]:
                for node in self._named(_decoded(body, _Nodes)):
                    service.kill_tokens(node)
                return {}
            case [_, "nodes"] | [_, "misbehaviours"] | [_, "notices"]:
                raise _NotSo
            case [_, "notices", "withdraw" | "end"] | [_, "tokens", "kill"]:
                raise _NotSo
        raise _NotThere

    def _named(self, asked: _Nodes) -> tuple[str, ...]:
        if asked.nodes == "all":
            return self._service.nodes()
        for node in asked.nodes:
            self._service.endpoint(node)  # an unknown one is an error before anything is done
        return asked.nodes

    def _node(self, node: str) -> dict[str, object]:
        service = self._service
        return {
            "node": node,
            "endpoint": service.endpoint(node),
            "environment": service.environment(node),
            "requests": service.requests(node),
            "reads": service.reads(node),
            "notices": [
                {
                    "id": notice.id,
                    "action": notice.action,
                    "issued_wall_s": notice.issued_wall_s,
                    "deadline_wall_s": notice.deadline_wall_s,
                }
                for notice in service.notices(node)
            ],
        }


def _active(entry: Any) -> dict[str, object]:
    return {"number": entry.number, **msgspec.to_builtins(entry.what)}


async def _body(received: web.BaseRequest) -> bytes:
    if not received.can_read_body:
        return b""
    if received.content_type != "application/json":
        raise ValueError(f"Content-Type {received.content_type!r}: expected application/json")
    body = bytearray()
    async with asyncio.timeout(_BODY_S):
        while chunk := await received.content.readany():
            body += chunk
            if len(body) > _BODY_MAX_BYTES:
                raise ValueError(f"the body is longer than {_BODY_MAX_BYTES} bytes")
    return bytes(body)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(f"the body: {error}") from error


def _json(status: int, told: object) -> web.Response:
    body = msgspec.json.encode(told) + b"\n"
    return web.Response(status=status, body=body, content_type="application/json")
