"""A metadata service with one node, and requests to it that see every byte of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from chaosspot.services.metadata import (
    AwsSettings,
    AzureSettings,
    GcpSettings,
    Instance,
    MetadataService,
)

PATHS = {
    "aws": "/latest/meta-data/spot/instance-action",
    "gcp": "/computeMetadata/v1/instance/preempted",
    "azure": "/metadata/scheduledevents?api-version=2020-07-01",
}
SETTINGS = {
    "aws": AwsSettings(tokens_required=False),
    "gcp": GcpSettings(),
    "azure": AzureSettings(requests_per_s=None),
}
HEADERS = {"Metadata-Flavor": "Google", "Metadata": "true"}


def serving(
    cloud: str, body: Callable[[MetadataService, str], Awaitable[None]], **options: Any
) -> None:
    async def main() -> None:
        options.setdefault("settings", SETTINGS[cloud])
        async with MetadataService(provider=cloud, **options) as service:
            instance = Instance(node="node-0", zone="a", family="f", pool="spot", group="g")
            await body(service, await service.add(instance))

    asyncio.run(main())


async def raw(
    base: str, path: str, *, method: str = "GET", body: str = "", **headers: str
) -> bytes:
    """Everything that comes until the connection ends.

    Raises:
        ConnectionResetError: with what came before as its argument.
    """
    address = urlsplit(base)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (HEADERS | headers).items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    writer.write("\r\n".join([*lines, "", body]).encode())
    got = b""
    try:
        while chunk := await reader.read(65536):
            got += chunk
    except ConnectionResetError:
        raise ConnectionResetError(got) from None
    finally:
        writer.close()
    return got


def parts(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body
