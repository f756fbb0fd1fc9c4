"""Whatever is sent, the services answer or close, say nothing on stderr and do not grow.

Short by default; CHAOSSPOT_FUZZ_S=60 goes on for a minute.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlsplit

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("CHAOSSPOT_FUZZ_S", "0"))
EXAMPLES = 100  # a round
ANSWER_S = 10.0
GROWTH_BYTES = 24e6

SERVER = """
import asyncio, sys
from chaosspot.services.metadata import AwsSettings, AzureSettings, GcpSettings
from chaosspot.services.metadata.serve import Options, serve
settings = {
    "aws": AwsSettings(tokens_required=False),
    "gcp": GcpSettings(),
    "azure": AzureSettings(requests_per_s=None),
}[sys.argv[1]]
options = Options(cloud=sys.argv[1], settings=settings, notice_after_s=0.0, json=True)
asyncio.run(serve(options, write=lambda line: print(line, flush=True)))
"""
ROOTS = {
    "aws": "/latest/meta-data/",
    "gcp": "/computeMetadata/v1/",
    "azure": "/metadata/instance?api-version=2021-02-01",
}


def quoted(text: str) -> bytes:
    return quote(text, safe="%").encode()


some_bytes = st.binary(max_size=40)
WORDS = (
    "latest 2021-03-23 api token meta-data dynamic user-data spot instance-action placement "
    "computeMetadata v1 instance project preempted service-accounts default attributes "
    "metadata scheduledevents identity oauth2 versions compute network interface 0 -1 "
    "nodes notices misbehaviours withdraw . .. %2e%2e %00 %ff %zz * : ; \u00e9 //"
)
words = st.sampled_from(WORDS.split())
segments = (words | st.text(max_size=6)).map(lambda text: text.encode("utf-8", "surrogatepass"))
paths = st.lists(segments, max_size=6).map(lambda parts: b"/" + b"/".join(parts))
names = st.sampled_from(
    b"api-version recursive wait_for_change last_etag timeout_sec alt format resource".split()
)
values = st.sampled_from(
    b"2020-07-01 2021-02-01 2018-02-01 true True false 0 1 -1 9999999999 json text x NONE".split()
)
pairs = st.tuples(names | some_bytes, values | some_bytes).map(b"=".join)
queries = st.lists(pairs, max_size=4).map(lambda found: b"?" + b"&".join(found) if found else b"")
headers = st.sampled_from(
    [
        b"Metadata-Flavor: Google",
        b"Metadata: true",
        b"X-aws-ec2-metadata-token-ttl-seconds: 60",
        b"X-aws-ec2-metadata-token: AAAA",
        b"X-Forwarded-For: ::1",
        b"Content-Type: application/json",
        b"Content-Length: 5",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
        b"Expect: 100-continue",
        b"Upgrade: websocket",
        b"Connection: close",
        b"Connection: keep-alive, upgrade",
        b"Host: y",
    ]
)
HARMLESS = [
    b"X-aws-ec2-metadata-token-ttl-seconds: 60",
    b"X-aws-ec2-metadata-token: AAAA",
    b"X-Forwarded-For: ::1",
    b"Content-Type: application/json",
    b"Connection: close",
    b"X-Google-Metadata-Request: True",
]
TARGETS = (
    "/latest/meta-data/ /latest/api/token /latest/dynamic/instance-identity/document / "
    "/latest/meta-data/spot/instance-action /latest/meta-data/iam/security-credentials/chaosspot "
    "/computeMetadata/v1/ /computeMetadata/v1/instance/ /computeMetadata/v1/instance/preempted "
    "/computeMetadata/v1/instance/service-accounts/default/token /computeMetadata/v1/instance/tags "
    "/metadata/scheduledevents?api-version=2020-07-01 /metadata/instance?api-version=2021-02-01 "
    "/metadata/instance/compute/ /metadata/identity/oauth2/token?api-version=2018-02-01 "
    "/metadata/versions /nodes /notices /notices/end /misbehaviours /misbehaviours/1 /tokens/kill "
)
targets = st.sampled_from(TARGETS.split()).map(str.encode)
methods = st.sampled_from(
    [b"GET", b"HEAD", b"PUT", b"POST", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE", b""]
)
versions = st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/x", b""])
bodies = st.sampled_from(
    [
        b"",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"zz\r\n",
        b'{"StartRequests":[{"EventId":"x"}]}',
        b'{"StartRequests":' + b"[" * 5000,
        b'{"nodes":"all","lead_s":1e999}',
        b"x" * 100_000,
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Something like a request, right or wrong in any of its parts."""
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"]))
    target = draw(paths) + draw(queries)
    line = b" ".join([draw(methods | some_bytes), target, draw(versions)])
    lines = [line, b"Host: x", *draw(st.lists(headers | some_bytes, max_size=6)), b""]
    return end.join([*lines, draw(bodies | some_bytes)])


@st.composite
def sound_requests(draw: st.DrawFn) -> bytes:
    """Good HTTP: what it asks for is for the services to judge."""
    target = draw(targets) + b"/".join(draw(st.lists(words.map(quoted), max_size=1)))
    asked = draw(st.lists(st.tuples(names, values | words.map(quoted)).map(b"=".join), max_size=4))
    if asked:
        target += (b"&" if b"?" in target else b"?") + b"&".join(asked)
    method = draw(st.sampled_from([b"GET", b"GET", b"GET", b"HEAD", b"PUT", b"POST", b"DELETE"]))
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: x", b"Metadata: true"]
    lines += [b"Metadata-Flavor: Google"] * draw(st.sampled_from([0, 1, 1, 1]))
    lines += draw(st.lists(st.sampled_from(HARMLESS), max_size=3))
    body = draw(bodies | some_bytes)
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


streams = (
    st.lists(sound_requests(), min_size=1, max_size=3).map(b"".join)
    | st.lists(requests(), min_size=1, max_size=3).map(b"".join)
    | st.binary(max_size=300)
)


@pytest.fixture(scope="module", params=sorted(ROOTS))
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, psutil.Process, list[str]]]:
    """A cloud, its server's process, and the addresses of its node and its control."""
    cloud = request.param
    argv = [sys.executable, "-c", SERVER, cloud]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield cloud, psutil.Process(process.pid), [told["nodes"][0]["endpoint"], told["control"]]
        process.terminate()
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()


def send(endpoint: str, data: bytes) -> bytes:
    """What comes back before the connection ends, which it must.

    After a moment for an answer this side hangs up: whoever waits for more of a request, or for
    the change that a hanging GET asked for, has no reason to wait any longer.
    """
    address = urlsplit(endpoint)
    got = b""
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as client:
        try:
            client.sendall(data)
            client.settimeout(0.05)
            with suppress(TimeoutError):
                got = client.recv(65536)
            client.settimeout(ANSWER_S)
            client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(65536):
                got += chunk
        except ConnectionError:
            pass
        except TimeoutError as error:
            raise AssertionError(f"neither answered nor closed in {ANSWER_S} s") from error
    return got


@pytest.mark.timeout(max(180, 6 * SECONDS))
def test_anything_is_answered_or_closed(server: tuple[str, psutil.Process, list[str]]) -> None:
    cloud, process, endpoints = server

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(stream=streams, where=st.sampled_from(endpoints))
    def round_of(stream: bytes, where: str) -> None:
        got = send(where, stream)
        assert re.match(rb"HTTP/\d\.\d [1-4]\d\d |$", got), got[:100]
        assert b"Traceback" not in got

    end_s = time.monotonic() + SECONDS
    round_of()
    sizes = [process.memory_info().rss]
    while time.monotonic() < end_s:
        round_of()
        sizes.append(process.memory_info().rss)
    plain = f"GET {ROOTS[cloud]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    answer = send(
        endpoints[0], f"{plain}Metadata: true\r\nMetadata-Flavor: Google\r\n\r\n".encode()
    )
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    # the first rounds fill caches; after those it must not go on growing
    settled = sizes[len(sizes) // 4]
    assert sizes[-1] - settled < GROWTH_BYTES, sizes
    assert (
        len(
            process.connections()
            if not hasattr(process, "net_connections")
            else process.net_connections()
        )
        < 10
    )
