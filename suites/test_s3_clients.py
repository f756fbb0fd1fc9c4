"""Clients of S3 through proxy and layer, with 200 MB: ``pytest suites/test_s3_clients.py``.

Each client runs unmodified in a process of its own, and nothing but the environment that the
service gives out leads it to a proxy, and on to the store. What it stored is compared with what
moto holds, read past both; what it read with what it stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from chaosspot.services.proxy import ProxyService
from chaosspot.services.s3 import S3Service

CLIENTS = ("boto3", "s3transfer", "obstore")
INSTALLED = {found.metadata["Name"]: found.version for found in metadata.distributions()}
SIZE_BYTES = 200_000_000
LAYER_MAY_GROW_BYTES = 50_000_000

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not set(CLIENTS) <= set(INSTALLED), reason=f"needs {', '.join(CLIENTS)}: the dev extra"
    ),
]

FOREIGN = ("AWS_", "BOTO")

BEGIN = f"""
import hashlib, io, json, random, sys
body = random.Random(1).randbytes({SIZE_BYTES})
bucket = "chaosspot"
def told(got):
    print(json.dumps({{"bytes": len(got), "sha256": hashlib.sha256(got).hexdigest()}}))
"""
BOTO3 = """
import boto3
client = boto3.client("s3")
"""
PROGRAMS = {
    "boto3, one request": BOTO3
    + """
client.put_object(Bucket=bucket, Key="k", Body=body)
told(client.get_object(Bucket=bucket, Key="k")["Body"].read())
""",
    "boto3, upload_fileobj": BOTO3
    + """
client.upload_fileobj(io.BytesIO(body), bucket, "k")
got = io.BytesIO()
client.download_fileobj(bucket, "k", got)
told(got.getvalue())
""",
    "s3transfer, 16 threads": BOTO3
    + """
from s3transfer.manager import TransferConfig, TransferManager
config = TransferConfig(max_request_concurrency=16, multipart_chunksize=5 << 20)
with TransferManager(client, config) as manager:
    manager.upload(io.BytesIO(body), bucket, "k").result()
    got = io.BytesIO()
    manager.download(bucket, "k", got).result()
told(got.getvalue())
""",
    "obstore": """
import os
import obstore
from obstore.store import S3Store
store = S3Store(bucket, endpoint=os.environ["AWS_ENDPOINT_URL_S3"])
obstore.put(store, "k", io.BytesIO(body))
told(b"".join(bytes(piece) for piece in obstore.get(store, "k").stream(min_chunk_size=1 << 20)))
""",
}


@pytest.fixture(scope="module", autouse=True)
def versions(request: pytest.FixtureRequest) -> None:
    found = ", ".join(f"{name} {INSTALLED.get(name)}" for name in (*CLIENTS, "moto"))
    plugins = request.config.pluginmanager
    reporter, capture = (plugins.get_plugin(n) for n in ("terminalreporter", "capturemanager"))
    if reporter and capture:
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"\nclients: {found}")


async def says(program: str, service: S3Service, address: str) -> Any:
    """What the program prints, which finds the store at ``address``."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    given = service.environment("node-0", endpoint=f"http://{address}")
    own = {"HOME": "/nonexistent", **nowhere, **given}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BEGIN + program),
        env={**plain, **own},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()[-3000:]
    return json.loads(out)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The most memory that this process, with the layer in it, had since it was forgotten."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("program", PROGRAMS)
def test_200_mb_byte_for_byte(program: str) -> None:
    async def main() -> None:
        async with S3Service() as service, ProxyService() as proxies:
            upstream = urlsplit(service.endpoint).netloc
            proxy = await proxies.create("store", upstream=upstream)
            forget_peak()
            before_bytes = peak_bytes()
            told = await says(PROGRAMS[program], service, proxy.listen)
            grown_bytes = peak_bytes() - before_bytes
            assert proxies.traffic("store").upstream_bytes > SIZE_BYTES
            assert service.requests("node-0") >= 2
            assert await service.reader.uploads() == ()
            stored = await service.reader.read("k")
        body = random.Random(1).randbytes(SIZE_BYTES)
        right = hashlib.sha256(body).hexdigest()
        assert hashlib.sha256(stored).hexdigest() == right
        assert told == {"bytes": SIZE_BYTES, "sha256": right}
        assert grown_bytes < LAYER_MAY_GROW_BYTES

    asyncio.run(main())
