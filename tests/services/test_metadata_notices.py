"""What is announced, to whom, and who hears of it at once: all clouds on real sockets."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from waiting import until

from chaosspot.services.metadata import (
    AwsSettings,
    AzureSettings,
    GcpSettings,
    Instance,
    MetadataService,
)

FLAVOR = {"Metadata-Flavor": "Google"}
PREEMPTED = "/computeMetadata/v1/instance/preempted"
HANG = f"{PREEMPTED}?wait_for_change=True"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def node(name: str, **more: str) -> Instance:
    given = {"node": name, "zone": "a", "family": "f", "pool": "spot"}
    return Instance(**(given | more))


def serving(
    body: Callable[[MetadataService, aiohttp.ClientSession], Awaitable[None]], **options: Any
) -> None:
    async def main() -> None:
        headers = {"Metadata-Flavor": "Google", "Metadata": "true"}
        async with (
            MetadataService(**options) as service,
            aiohttp.ClientSession(headers=headers) as session,
        ):
            await body(service, session)

    asyncio.run(main())


async def text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        return await answer.text()


async def document(session: aiohttp.ClientSession, base: str) -> Any:
    return json.loads(await text(session, base + EVENTS))


# --- hanging GETs -------------------------------------------------------------------------------


def test_a_hanging_get_is_answered_when_the_notice_comes() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        other = await service.add(node("node-1"))
        asked = [asyncio.create_task(text(session, url + HANG)) for url in (base, base, other)]
        await until(lambda: service.requests("node-0") == 2 and service.requests("node-1") == 1)
        service.publish("node-0", lead_s=30.0)
        assert await asyncio.gather(*asked[:2]) == ["TRUE", "TRUE"]
        assert not asked[2].done()
        assert (service.reads("node-0"), service.reads("node-1")) == (2, 0)
        service.withdraw("node-0")
        assert await text(session, base + PREEMPTED) == "FALSE"
        asked[2].cancel()

    serving(body, provider="gcp")


def test_a_notice_in_the_very_moment_of_the_request_is_not_missed() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        asked = asyncio.create_task(text(session, base + HANG))
        await until(lambda: service.requests("node-0") == 1)
        service.publish("node-0", lead_s=30.0)
        assert await asyncio.wait_for(asked, 10.0) == "TRUE"

    serving(body, provider="gcp", monotonic=lambda: 5.0)


def test_a_change_between_two_requests_is_not_missed() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        async with session.get(base + PREEMPTED) as answer:
            etag = answer.headers["ETag"]
        service.publish("node-0", lead_s=30.0)
        assert await text(session, f"{base}{HANG}&last_etag={etag}") == "TRUE"

    serving(body, provider="gcp")


def test_a_hanging_get_ends_at_its_timeout() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        began_s = time.monotonic()
        async with session.get(f"{base}{HANG}&timeout_sec=1") as answer:
            assert (answer.status, await answer.text()) == (200, "FALSE")
        assert 1.0 <= time.monotonic() - began_s < 5.0

    serving(body, provider="gcp")


def test_by_acpi_a_hanging_get_is_answered_at_the_deadline() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        async with session.get(base + PREEMPTED) as answer:
            etag = answer.headers["ETag"]
        began_s = time.monotonic()
        service.publish("node-0", lead_s=0.5)
        assert await text(session, f"{base}{HANG}&last_etag={etag}") == "TRUE"
        assert time.monotonic() - began_s >= 0.5

    serving(body, provider="gcp", settings=GcpSettings(preemption="acpi"))


def test_who_leaves_while_hanging_is_forgotten() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        idle = len(asyncio.all_tasks())
        asked = [asyncio.create_task(text(session, base + HANG)) for _ in range(20)]
        await until(lambda: service.requests("node-0") == 20)
        for task in asked:
            task.cancel()
        await until(lambda: len(asyncio.all_tasks()) == idle)

    serving(body, provider="gcp")


def test_a_service_that_is_left_cuts_off_who_hangs() -> None:
    async def main() -> None:
        async with MetadataService(provider="gcp") as service:
            bases = [await service.add(node(f"node-{n}")) for n in range(50)]
            addresses = [urlsplit(base) for base in bases]
            pairs = [await asyncio.open_connection(a.hostname, a.port) for a in addresses]
            for _, writer in pairs:
                writer.write(
                    f"GET {HANG} HTTP/1.1\r\nHost: x\r\nMetadata-Flavor: Google\r\n\r\n".encode()
                )
            await until(lambda: all(service.requests(f"node-{n}") for n in range(50)))
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 2.0
        for reader, writer in pairs:
            assert await reader.read() == b""
            writer.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


# --- scale sets ---------------------------------------------------------------------------------


def test_an_event_is_seen_by_its_scale_set_and_names_its_nodes() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        bases = [
            await service.add(node(f"node-{n}", group=group))
            for n, group in enumerate(["red", "red", "red", "blue"])
        ]
        before = [await document(session, base) for base in bases]
        deadlines = service.publish_all([f"node-{n}" for n in (0, 1, 3)], lead_s=30.0)
        assert len(set(deadlines.values())) == 1
        after = [await document(session, base) for base in bases]
        (event,) = after[2]["Events"]
        assert event["Resources"] == ["red_0", "red_1"]
        assert after[0] == after[1] == after[2]
        assert after[3]["Events"][0]["Resources"] == ["blue_3"]
        for old, new in zip(before, after, strict=True):
            assert new["DocumentIncarnation"] == old["DocumentIncarnation"] + 1
        assert [service.reads(f"node-{n}") for n in range(4)] == [1, 1, 0, 1]

    serving(body, provider="azure")


def test_one_nodes_approval_starts_the_event_for_all() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        bases = [await service.add(node(f"node-{n}", group="g")) for n in range(2)]
        service.publish_all(["node-0", "node-1"], lead_s=600.0, action="reboot")
        (event,) = (await document(session, bases[0]))["Events"]
        body = {"StartRequests": [{"EventId": event["EventId"]}]}
        async with session.post(bases[0] + EVENTS, json=body) as answer:
            assert answer.status == 200
        (seen,) = (await document(session, bases[1]))["Events"]
        assert (seen["EventStatus"], seen["NotBefore"]) == ("Started", "")
        assert seen["EventId"] == event["EventId"]

    serving(body, provider="azure", settings=AzureSettings(start_after_s=0.0))


def test_an_event_goes_on_without_a_node_that_is_gone() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        bases = [await service.add(node(f"node-{n}", group="g")) for n in range(3)]
        service.publish_all(["node-0", "node-1"], lead_s=600.0)
        first = await document(session, bases[2])
        await service.remove("node-0")
        second = await document(session, bases[2])
        assert second["Events"][0]["Resources"] == ["g_1"]
        assert second["Events"][0]["EventId"] == first["Events"][0]["EventId"]
        assert second["DocumentIncarnation"] > first["DocumentIncarnation"]
        await service.remove("node-1")
        third = await document(session, bases[2])
        assert third["Events"] == []
        assert third["DocumentIncarnation"] > second["DocumentIncarnation"]

    serving(body, provider="azure")


def test_a_node_that_comes_again_keeps_its_name_in_the_scale_set() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        for number in range(2):
            await service.add(node(f"node-{number}", group="g"))
        await service.remove("node-0")
        base = await service.add(node("node-0", group="g"))
        service.publish("node-0", lead_s=30.0)
        assert (await document(session, base))["Events"][0]["Resources"] == ["g_0"]

    serving(body, provider="azure")


def test_the_first_call_takes_its_time() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        began_s = time.monotonic()
        assert (await document(session, base))["Events"] == []
        assert time.monotonic() - began_s >= 0.4
        again_s = time.monotonic()
        await document(session, base)
        assert time.monotonic() - again_s < 0.4

    serving(body, provider="azure", settings=AzureSettings(first_call_delay_s=0.4))


# --- publish, withdraw, end, list ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("cloud", "action", "other"),
    [
        ("aws", "terminate", "rebalance"),
        ("gcp", "preempt", "migrate"),
        ("azure", "preempt", "freeze"),
    ],
)
def test_notices_are_listed_withdrawn_and_ended(cloud: str, action: str, other: str) -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        await service.add(node("node-0"))
        assert service.notices("node-0") == ()
        deadline_s = service.publish("node-0", lead_s=60.0)
        service.publish("node-0", lead_s=10.0, action=other)
        listed = {notice.action: notice for notice in service.notices("node-0")}
        assert set(listed) == {action, other}
        assert listed[action].deadline_wall_s == deadline_s
        service.end("node-0", other)
        assert [notice.action for notice in service.notices("node-0")] == [action]
        service.withdraw("node-0", other)
        assert len(service.notices("node-0")) == 1
        service.withdraw("node-0")
        assert service.notices("node-0") == ()

    serving(body, provider=cloud)


def test_a_notice_that_lasts_is_over_by_itself() -> None:
    clock = [100.0]

    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        await service.add(node("node-0"))
        service.publish("node-0", lead_s=60.0, action="system-reboot", lasts_s=30.0)
        found = []
        for clock[0] in (189.9, 190.0):
            found.append(len(service.notices("node-0")))
        assert found == [1, 0]
        service.publish("node-0", lead_s=60.0, action="system-reboot")
        assert service.notices("node-0")[0].closed_s == math.inf

    serving(body, monotonic=lambda: clock[0])


def test_rebalance_lifecycle_and_interruption_come_in_one_second() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0")) + "/latest/meta-data"
        for action in ("rebalance", "asg-terminate", "terminate"):
            service.publish("node-0", lead_s=120.0, action=action)
        assert "noticeTime" in await text(session, f"{base}/events/recommendations/rebalance")
        assert await text(session, f"{base}/autoscaling/target-lifecycle-state") == "Terminated"
        assert "terminate" in await text(session, f"{base}/spot/instance-action")

    serving(body, settings=AwsSettings(tokens_required=False))


def test_a_thousand_nodes_are_noticed_in_one_second() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        for number in range(1000):
            await service.add(node(f"node-{number}"))
        began_s = time.monotonic()
        deadlines = service.publish_all(service.nodes(), lead_s=120.0)
        assert time.monotonic() - began_s < 1.0
        assert len(deadlines) == 1000
        assert len(set(deadlines.values())) == 1
        assert all(service.notices(name) for name in service.nodes())

    serving(body)


def test_who_comes_again_is_the_same_machine_without_its_old_notice() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        async def identity(base: str) -> str:
            return await text(session, f"{base}/latest/meta-data/instance-id")

        first = await identity(await service.add(node("node-0")))
        service.publish("node-0", lead_s=60.0)
        await service.remove("node-0")
        with pytest.raises(ValueError, match="node='node-0': it is gone"):
            service.publish("node-0", lead_s=60.0)
        assert await identity(await service.add(node("node-0"))) == first
        assert service.notices("node-0") == ()

    serving(body, settings=AwsSettings(tokens_required=False))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": ["node-0", "node-9"]}, r"node='node-9': it has no listener"),
        ({"nodes": []}, r"nodes=\[\]"),
        ({"lead_s": 86401.0}, r"lead_s=86401.0: expected seconds, 0 to 86400"),
        ({"lasts_s": 0.0}, r"lasts_s=0.0"),
        ({"action": "reboot"}, r"action='reboot': expected one of preempt, migrate"),
        ({"nodes": ["node-0", "node-1"], "action": "migrate"}, r"action='migrate': node 'node-1'"),
    ],
)
def test_a_bad_notice_changes_nothing(given: dict[str, Any], message: str) -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        base = await service.add(node("node-0"))
        await service.add(node("node-1"))
        service.publish("node-1", lead_s=60.0, action="terminate")
        async with session.get(base + PREEMPTED) as answer:
            etag = answer.headers["ETag"]
        wanted: dict[str, Any] = {"nodes": ["node-0"], "lead_s": 60.0, **given}
        with pytest.raises(ValueError, match=message):
            service.publish_all(wanted.pop("nodes"), **wanted)
        assert service.notices("node-0") == ()
        assert [notice.action for notice in service.notices("node-1")] == ["terminate"]
        async with session.get(base + PREEMPTED) as answer:
            assert answer.headers["ETag"] == etag

    serving(body, provider="gcp")


def test_settings_of_another_cloud_are_refused() -> None:
    with pytest.raises(ValueError, match="settings=AwsSettings: not those of provider='gcp'"):
        MetadataService(provider="gcp", settings=AwsSettings())


def test_a_failed_add_leaves_no_trace() -> None:
    async def body(service: MetadataService, session: aiohttp.ClientSession) -> None:
        port = urlsplit(await service.add(node("node-0"))).port
        assert port is not None
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            await service.add(node("node-1"), port=port)
        with pytest.raises(ValueError, match="node='node-1': it has no listener"):
            service.notices("node-1")

    serving(body)
