"""The control over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from chaosspot.services.metadata import AwsSettings, Instance, MetadataService
from chaosspot.services.metadata.control import Control

Ask = Callable[..., Awaitable[tuple[int, Any]]]


def controlling(body: Callable[[MetadataService, Ask], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            MetadataService(settings=AwsSettings(tokens_required=False)) as service,
            Control(service) as control,
            aiohttp.ClientSession() as session,
        ):
            for name in ("node-0", "node-1"):
                await service.add(Instance(node=name, zone="a", family="f", pool="spot"))

            async def ask(method: str, path: str, json: Any = None, **more: Any) -> tuple[int, Any]:
                url = control.endpoint + path
                async with session.request(method, url, json=json, **more) as answer:
                    return answer.status, await answer.json()

            await body(service, ask)

    asyncio.run(main())


def test_publish_list_end_and_withdraw() -> None:
    async def body(service: MetadataService, ask: Ask) -> None:
        wanted = {"nodes": ["node-1"], "lead_s": 60.0, "action": "stop"}
        status, told = await ask("POST", "/notices", wanted)
        (notice,) = service.notices("node-1")
        assert (status, told) == (200, {"deadlines": {"node-1": notice.deadline_wall_s}})
        status, listed = await ask("GET", "/nodes")
        first, second = listed["nodes"]
        assert (status, first["node"], first["notices"]) == (200, "node-0", [])
        assert second["endpoint"] == service.endpoint("node-1")
        assert second["environment"] == service.environment("node-1")
        assert (second["reads"], second["requests"]) == (0, 0)
        assert [n["action"] for n in second["notices"]] == ["stop"]
        closed = {"closed": {"node-1": ["stop"]}}
        assert await ask("POST", "/notices/end", {"nodes": ["node-1"]}) == (200, closed)
        assert service.notices("node-1") == ()
        await ask("POST", "/notices", {"nodes": "all", "lead_s": 60.0})
        closed = {"closed": {"node-0": ["terminate"], "node-1": ["terminate"]}}
        assert await ask("POST", "/notices/withdraw", {"nodes": "all"}) == (200, closed)
        closed = {"closed": {"node-0": [], "node-1": []}}
        assert await ask("POST", "/notices/withdraw", {"nodes": "all"}) == (200, closed)
        assert service.notices("node-0") == service.notices("node-1") == ()

    controlling(body)


def test_misbehave_and_behave() -> None:
    async def body(service: MetadataService, ask: Ask) -> None:
        what = {"kind": "status", "status": 503, "paths": "/latest/*", "rate": 0.5}
        status, told = await ask("POST", "/misbehaviours", what)
        assert (status, told) == (200, {"number": 1})
        listed = (await ask("GET", "/misbehaviours"))[1]
        assert listed == {"misbehaviours": [{"number": 1, **what}]}
        assert await ask("DELETE", "/misbehaviours/1") == (200, {})
        assert service.misbehaviours() == ()
        assert (await ask("POST", "/tokens/kill", {"nodes": "all"}))[0] == 200

    controlling(body)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/nothing", None, 404, "no such path: /nothing"),
        ("GET", "/", None, 404, "no such path"),
        ("DELETE", "/nodes", None, 405, "method DELETE is not for /nodes"),
        ("GET", "/notices/end", None, 405, "method GET"),
        ("POST", "/notices", {"nodes": ["x"], "lead_s": 1}, 400, "node='x'"),
        ("POST", "/notices", {"nodes": ["node-0"]}, 400, "missing required field `lead_s`"),
        ("POST", "/notices", {"nodes": ["node-0"], "lead": 1}, 400, "unknown field `lead`"),
        ("POST", "/notices", {"nodes": ["node-0"], "lead_s": -1}, 400, "lead_s=-1"),
        ("POST", "/notices", {"nodes": "some", "lead_s": 1}, 400, "nodes"),
        ("POST", "/notices", None, 400, "the body"),
        ("POST", "/notices/withdraw", {"nodes": ["node-0", "x"]}, 400, "node='x'"),
        ("POST", "/notices/withdraw", {"nodes": ["node-0"], "action": "x"}, 400, "action='x'"),
        ("POST", "/misbehaviours", {"kind": "rude"}, 400, "rude"),
        ("POST", "/misbehaviours", {"kind": "status", "status": 299}, 400, "299"),
        ("DELETE", "/misbehaviours/7", None, 400, "misbehaviour=7: not in force"),
        ("DELETE", "/misbehaviours/x", None, 404, "no such path"),
    ],
)
def test_errors_say_what_was_wrong_and_change_nothing(
    method: str, path: str, body: Any, status: int, message: str
) -> None:
    async def check(service: MetadataService, ask: Ask) -> None:
        service.publish("node-0", lead_s=60.0)
        got, told = await ask(method, path, body)
        assert (got, list(told)) == (status, ["error"])
        assert message in told["error"]
        assert len(service.notices("node-0")) == 1
        assert service.misbehaviours() == ()

    controlling(check)


def test_pages_in_a_browser_have_no_control() -> None:
    async def body(service: MetadataService, ask: Ask) -> None:
        wanted = {"nodes": "all", "lead_s": 0.0}
        foreign = {"Origin": "http://example.com"}
        assert (await ask("POST", "/notices", wanted, headers=foreign))[0] == 403
        plain = {"Content-Type": "text/plain"}
        status, told = await ask("POST", "/notices", wanted, headers=plain)
        assert (status, "expected application/json" in told["error"]) == (400, True)
        assert service.notices("node-0") == ()

    controlling(body)
