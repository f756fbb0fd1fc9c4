"""The service on real sockets, asked by botocore's own client."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.utils import IMDSFetcher, InstanceMetadataFetcher, InstanceMetadataRegionFetcher

from chaosspot.services.metadata import AwsSettings, Instance, MetadataService

NOTICE = "latest/meta-data/spot/instance-action"
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def node(name: str = "node-0", **more: str) -> Instance:
    given = {"node": name, "zone": "a", "family": "p4d.24xlarge", "pool": "spot"}
    return Instance(**(given | more))


def run(body: Callable[[MetadataService], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with MetadataService(**options) as service:
            await body(service)

    asyncio.run(main())


class _Told(Exception):
    """Botocore gave up after its attempts."""


class Botocore(IMDSFetcher):
    """The token flow and the read are botocore's; we only choose the path."""

    _RETRIES_EXCEEDED_ERROR_CLS = _Told

    def read(self, path: str) -> str:
        return str(self._get_request(path, None, token=self._fetch_metadata_token()).text)


def test_botocore_reads_the_notice_when_it_is_there() -> None:
    async def body(service: MetadataService) -> None:
        endpoint = await service.add(node())
        client = Botocore(base_url=endpoint, env={}, config={"ec2_metadata_v1_disabled": True})
        with pytest.raises(_Told):
            await asyncio.to_thread(client.read, NOTICE)
        assert service.reads("node-0") == 0
        deadline_s = service.publish("node-0", lead_s=120.0)
        told = json.loads(await asyncio.to_thread(client.read, NOTICE))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(deadline_s))
        assert told == {"action": "terminate", "time": stamp}
        assert service.reads("node-0") == 1
        service.withdraw("node-0")
        with pytest.raises(_Told):
            await asyncio.to_thread(client.read, NOTICE)

    run(body)


def test_botocore_finds_the_region_and_no_role() -> None:
    async def body(service: MetadataService) -> None:
        await service.add(node(zone="eu-west-1c"))
        (endpoint,) = service.environment("node-0").values()
        region = InstanceMetadataRegionFetcher(base_url=endpoint, env={})
        assert await asyncio.to_thread(region.retrieve_region) == "eu-west-1"
        credentials = InstanceMetadataFetcher(base_url=endpoint, env={})
        assert await asyncio.to_thread(credentials.retrieve_iam_role_credentials) == {}

    run(body, settings=AwsSettings(role=""))


def test_the_environment_leads_a_boto_session_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.session import Session
    from botocore.utils import IMDSRegionProvider

    async def body(service: MetadataService) -> None:
        await service.add(node(zone="b"))
        for name, value in service.environment("node-0").items():
            monkeypatch.setenv(name, value)
        provider = IMDSRegionProvider(Session(), environ=dict(os.environ))
        assert await asyncio.to_thread(provider.provide) == "us-east-1"

    run(body)


def request(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(url, method=method, headers=named)
    try:
        with _open(asked, timeout=5) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_the_status_table_on_the_wire() -> None:
    async def body(service: MetadataService) -> None:
        base = await service.add(node())
        token_url, value_url = f"{base}/latest/api/token", f"{base}/latest/meta-data/instance-id"
        ttl = "X_aws_ec2_metadata_token_ttl_seconds"

        async def ask(*args: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
            return await asyncio.to_thread(request, *args, **headers)

        status, headers, token = await ask(token_url, "PUT", **{ttl: "60"})
        assert (status, headers["X-aws-ec2-metadata-token-ttl-seconds"]) == (200, "60")
        known = {"X_aws_ec2_metadata_token": token.decode()}
        status, headers, value = await ask(value_url, **known)
        assert (status, value[:2]) == (200, b"i-")
        assert set(headers) == {
            *("Server", "Connection", "Content-Type", "Content-Length", "Date"),
            *("Accept-Ranges", "Last-Modified", "X-aws-ec2-metadata-token-ttl-seconds"),
        }
        assert (headers["Server"], headers["Content-Type"]) == ("EC2ws", "text/plain")
        assert headers["Connection"] == "close"
        status, headers, empty = await ask(value_url, "HEAD", **known)
        assert (status, headers["Content-Length"], empty) == (200, str(len(value)), b"")
        status, headers, _ = await ask(token_url)
        assert (status, headers["Allow"], headers["Content-Length"]) == (405, "OPTIONS, PUT", "0")
        forwarded = {ttl: "60", "X_Forwarded_For": "10.0.0.1"}
        assert (await ask(token_url, "PUT", **{ttl: "0"}))[0] == 400
        assert (await ask(value_url))[0] == 401
        assert (await ask(token_url, "PUT", **forwarded))[0] == 403
        assert (await ask(f"{base}/latest/meta-data/spot/", **known))[0] == 404
        assert (await ask(f"{value_url}?a=b", **known))[0] == 200

    run(body)


@pytest.mark.parametrize(("provider", "closes"), [("aws", True), ("gcp", False)])
def test_who_ends_the_connection(provider: str, closes: bool) -> None:
    async def body(service: MetadataService) -> None:
        address = urlsplit(await service.add(node()))
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        if closes:
            answers = await asyncio.wait_for(reader.read(), 10.0)
            assert answers.count(b"HTTP/1.1 401") == 1
        else:
            for _ in range(2):
                assert (await reader.readuntil(b"computeMetadata/\n")).startswith(b"HTTP/1.1 200")
        writer.close()

    run(body, provider=provider)


def test_only_the_last_of_repeated_tokens_counts() -> None:
    async def body(service: MetadataService) -> None:
        base = await service.add(node())
        ttl = {"X_aws_ec2_metadata_token_ttl_seconds": "60"}
        put = await asyncio.to_thread(request, f"{base}/latest/api/token", "PUT", **ttl)
        host, port = str(urlsplit(base).hostname), urlsplit(base).port
        for tokens, status in (
            (["old", put[2].decode()], b"200"),
            ([put[2].decode(), "old"], b"401"),
        ):
            reader, writer = await asyncio.open_connection(host, port)
            lines = "".join(f"X-aws-ec2-metadata-token: {token}\r\n" for token in tokens)
            writer.write(f"GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
            assert (await reader.readline()).split()[1] == status
            writer.close()

    run(body)


def test_tokens_expire_by_the_monotonic_clock() -> None:
    clock = Clock(50.0)

    async def body(service: MetadataService) -> None:
        base = await service.add(node())
        ttl = {"X_aws_ec2_metadata_token_ttl_seconds": "10"}
        token = (await asyncio.to_thread(request, f"{base}/latest/api/token", "PUT", **ttl))[2]
        for now_s, status in ((59.9, 200), (60.0, 401)):
            clock.now_s = now_s
            known = {"X_aws_ec2_metadata_token": token.decode()}
            assert (await asyncio.to_thread(request, base, **known))[0] == status

    run(body, monotonic=clock)


def test_a_deadline_is_whole_seconds_rounded_down_and_never_moves() -> None:
    clock = Clock(1000.75)

    async def body(service: MetadataService) -> None:
        await service.add(node())
        assert service.publish("node-0", lead_s=120.2) == 1120.0
        clock.now_s = 1050.0
        assert service.publish("node-0", lead_s=120.0) == 1120.0
        with pytest.raises(ValueError, match=r"action='stop'.*'terminate' at 1120"):
            service.publish("node-0", lead_s=120.0, action="stop")
        service.withdraw("node-0")
        service.withdraw("node-0")
        assert service.publish("node-0", lead_s=0.0, action="hibernate") == 1050.0

    run(body, wall=clock)


def test_a_notice_is_for_one_node_only() -> None:
    async def body(service: MetadataService) -> None:
        first = await service.add(node("node-0"))
        second = await service.add(node("node-1"))
        service.publish("node-1", lead_s=5.0)
        answers = await asyncio.gather(
            *(asyncio.to_thread(request, f"{base}/{NOTICE}") for base in (first, second))
        )
        assert [status for status, _, _ in answers] == [404, 200]
        assert [service.reads(f"node-{n}") for n in (0, 1)] == [0, 1]

    run(body, settings=AwsSettings(tokens_required=False))


@pytest.mark.parametrize("lead_s", [-1.0, 86400.5, float("nan"), float("inf")])
def test_a_bad_lead_is_named(lead_s: float) -> None:
    async def body(service: MetadataService) -> None:
        await service.add(node())
        with pytest.raises(ValueError, match=f"lead_s={lead_s!r}"):
            service.publish("node-0", lead_s=lead_s)

    run(body)


def test_bad_names_are_named() -> None:
    async def body(service: MetadataService) -> None:
        await service.add(node())
        with pytest.raises(ValueError, match="node='node-0': it already has"):
            await service.add(node())
        with pytest.raises(ValueError, match="action='reboot': expected one of terminate"):
            service.publish("node-0", lead_s=1.0, action="reboot")
        for call in (service.reads, service.environment, service.withdraw):
            with pytest.raises(ValueError, match=r"node='node-9': .* with one: node-0"):
                call("node-9")

    run(body)
    with pytest.raises(ValueError, match="provider='acme': expected one of aws, gcp, azure"):
        MetadataService(provider="acme")


def test_it_serves_only_while_entered() -> None:
    async def main() -> None:
        service = MetadataService()
        with pytest.raises(RuntimeError, match="async with"):
            await service.add(node())

    asyncio.run(main())


def test_an_address_in_use_leaves_nothing_behind() -> None:
    async def body(service: MetadataService) -> None:
        taken = socket.create_server(("127.0.0.1", 0))
        with taken, pytest.raises(OSError, match="address already in use"):
            await service.add(node(), port=taken.getsockname()[1])
        assert await service.add(node(), host="127.0.0.2")

    run(body)


def test_removed_means_refused() -> None:
    async def body(service: MetadataService) -> None:
        address = urlsplit(await service.add(node()))
        await service.remove("node-0")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address.hostname, address.port)

    run(body)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_two_hundred_listeners_are_cheap_and_leave_nothing_open() -> None:
    counted: dict[str, float] = {}

    async def main() -> None:
        before = descriptors()
        async with MetadataService(settings=AwsSettings(tokens_required=False)) as service:
            started_s = time.process_time()
            bases = [await service.add(node(f"node-{n}")) for n in range(200)]
            counted["cpu_s"] = time.process_time() - started_s
            counted["open"] = descriptors() - before
            for n in range(0, 200, 2):
                service.publish(f"node-{n}", lead_s=60.0)
            answers = [
                await asyncio.to_thread(request, f"{base}/{NOTICE}")
                for base in (bases[0], bases[199])
            ]
            assert [status for status, _, _ in answers] == [200, 404]
            # A client that connects and says nothing must not hold up the end.
            address = urlsplit(bases[7])
            _, silent = await asyncio.open_connection(address.hostname, address.port)
        silent.close()
        await silent.wait_closed()
        counted["left"] = descriptors() - before
        counted["tasks"] = len(asyncio.all_tasks()) - 1

    asyncio.run(main())
    assert counted["open"] >= 200
    assert (counted["left"], counted["tasks"]) == (0, 0), counted
    assert counted["cpu_s"] < 1.0, counted
