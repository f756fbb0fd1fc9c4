"""The clouds' own clients against our services: ``pytest suites/test_metadata_clients.py``.

Each client runs unmodified in a process of its own, and nothing but the environment that the
service gives out leads it to its node. What it says is compared with what the service was told.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any

import pytest

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AwsSettings, Instance, MetadataService

CLIENTS = ("botocore", "ec2-metadata", "google-auth", "azure-identity", "msal")
INSTALLED = {found.metadata["Name"]: found.version for found in metadata.distributions()}

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not set(CLIENTS) <= set(INSTALLED), reason=f"needs {', '.join(CLIENTS)}: the dev extra"
    ),
]

FOREIGN = ("AWS_", "GCE_", "GOOGLE_", "AZURE_", "IDENTITY_", "MSI_", "IMDS_", "NO_GCE")

BOTOCORE = """
import json, os
from botocore.session import Session
from botocore.utils import IMDSRegionProvider
session = Session()
found = session.get_credentials()
told = {"region": IMDSRegionProvider(session, environ=dict(os.environ)).provide()}
if found:
    frozen = found.get_frozen_credentials()
    told |= {"method": found.method, "access_key": frozen.access_key, "token": bool(frozen.token)}
print(json.dumps(told))
"""
EC2_METADATA = """
import json, os
import urllib3
from ec2_metadata import EC2Metadata
service = EC2Metadata()
base = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "/latest/"
service.service_url = base
for name in ("dynamic", "metadata", "userdata"):
    own = {"metadata": "meta-data", "userdata": "user-data"}.get(name, name)
    setattr(service, name + "_url", base + own + "/")
action = service.spot_instance_action
print(json.dumps({
    "id": service.instance_id,
    "type": service.instance_type,
    "zone": service.availability_zone,
    "region": service.region,
    "life_cycle": service.instance_life_cycle,
    "account": service.account_id,
    "role": service.instance_profile_name,
    "key": service.iam_security_credentials["AccessKeyId"],
    "private": service.private_ipv4,
    "partition": service.partition,
    "tag": service.tags["team"],
    "lifecycle": service.autoscaling_target_lifecycle_state,
    "user_data": service.user_data and service.user_data.decode(),
    "action": action and action.action,
    "time": action and action.time.timestamp(),
}))
"""
GOOGLE = """
import json
import google.auth, google.auth.transport.requests
from google.auth.compute_engine import _metadata
asked = google.auth.transport.requests.Request()
credentials, project = google.auth.default(
    scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(asked)
print(json.dumps({
    "on_gce": _metadata.ping(asked),
    "kind": type(credentials).__module__,
    "project": project,
    "email": credentials.service_account_email,
    "token": credentials.token,
    "preempted": _metadata.get(asked, "instance/preempted"),
    "zone": _metadata.get(asked, "instance/zone"),
    "scheduling": _metadata.get(asked, "instance/scheduling/", recursive=True),
}))
"""
GOOGLE_WAITS = """
import google.auth.transport.requests
from google.auth.compute_engine import _metadata
asked = google.auth.transport.requests.Request()
print(_metadata.get(asked, "instance/preempted", timeout=60, params={"wait_for_change": "true"}))
"""
AZURE = """
import json, time
from azure.identity import ManagedIdentityCredential
token = ManagedIdentityCredential().get_token("https://management.azure.com/.default")
print(json.dumps({"token": token.token, "left_s": token.expires_on - time.time()}))
"""


@pytest.fixture(scope="module", autouse=True)
def versions(request: pytest.FixtureRequest) -> None:
    found = ", ".join(f"{name} {INSTALLED.get(name)}" for name in CLIENTS)
    plugins = request.config.pluginmanager
    reporter, capture = (plugins.get_plugin(n) for n in ("terminalreporter", "capturemanager"))
    if reporter and capture:
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"\nclients: {found}")


def serving(cloud: str, body: Callable[[MetadataService], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with MetadataService(provider=cloud, run="conformance", **options) as service:
            await service.add(
                Instance(node="node-0", zone="b", family="f", pool="spot", tags={"team": "red"})
            )
            await body(service)

    asyncio.run(main())


async def client(program: str, service: MetadataService, **environment: str) -> str:
    """The output of a client on node-0, led there by its environment alone."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    own = {"NO_PROXY": "*", "no_proxy": "*", "HOME": "/nonexistent", **nowhere}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={**plain, **own, **service.environment("node-0"), **environment},
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
    return out.decode().strip()


async def says(program: str, service: MetadataService, **environment: str) -> Any:
    return json.loads(await client(program, service, **environment))


# --- botocore -----------------------------------------------------------------------------------


@pytest.mark.parametrize("disabled", ["true", "false"])
def test_botocore_by_tokens(disabled: str) -> None:
    async def body(service: MetadataService) -> None:
        told = await says(BOTOCORE, service, AWS_EC2_METADATA_V1_DISABLED=disabled)
        assert told.pop("access_key").startswith("ASIA")
        assert told == {"region": "us-east-1", "method": "iam-role", "token": True}

    serving("aws", body)


def test_botocore_without_tokens_when_the_hop_limit_takes_them() -> None:
    async def body(service: MetadataService) -> None:
        told = await says(BOTOCORE, service)
        assert (told["region"], told["method"]) == ("us-east-1", "iam-role")
        with pytest.raises(AssertionError, match="IMDSv1 has been disabled"):
            await says(BOTOCORE, service, AWS_EC2_METADATA_V1_DISABLED="true")

    serving("aws", body, settings=AwsSettings(tokens_required=False, hops=1))


def test_botocore_where_no_token_can_be_had() -> None:
    async def body(service: MetadataService) -> None:
        assert await says(BOTOCORE, service) == {"region": None}

    serving("aws", body, settings=AwsSettings(tokens_required=True, hops=1))


@pytest.mark.parametrize(
    "what",
    [
        m.Status(status=503, first=1),
        m.Reset(stage="body", first=1, paths="/latest/meta-data/*"),
        m.Body(body="empty", first=1, paths="*/security-credentials/*"),
    ],
)
def test_botocore_tries_again(what: m.MisbehaviourKind) -> None:
    async def body(service: MetadataService) -> None:
        service.misbehave(what)
        told = await says(BOTOCORE, service, AWS_METADATA_SERVICE_NUM_ATTEMPTS="4")
        assert (told["region"], told["method"]) == ("us-east-1", "iam-role")

    serving("aws", body)


# --- ec2-metadata -------------------------------------------------------------------------------


def test_ec2_metadata() -> None:
    async def body(service: MetadataService) -> None:
        told = await says(EC2_METADATA, service)
        assert told["id"].startswith("i-")
        assert told["key"].startswith("ASIA")
        assert (told["type"], told["zone"], told["region"]) == ("f", "us-east-1b", "us-east-1")
        assert (told["life_cycle"], told["partition"]) == ("spot", "aws")
        assert (told["role"], told["account"]) == ("chaosspot", "123456789012")
        assert (told["tag"], told["private"]) == ("red", "10.0.0.0")
        assert told["action"] is told["lifecycle"] is told["user_data"] is None
        deadline_s = service.publish("node-0", lead_s=120.0, action="stop")
        service.publish("node-0", lead_s=120.0, action="asg-terminate")
        told = await says(EC2_METADATA, service)
        assert (told["action"], told["time"]) == ("stop", deadline_s)
        assert (told["lifecycle"], service.reads("node-0")) == ("Terminated", 2)

    serving("aws", body)


# --- google-auth --------------------------------------------------------------------------------


def test_google_auth() -> None:
    async def body(service: MetadataService) -> None:
        told = await says(GOOGLE, service)
        assert told["kind"] == "google.auth.compute_engine.credentials"
        assert (told["on_gce"], told["project"]) == (True, "chaosspot")
        assert told["email"].endswith("-compute@developer.gserviceaccount.com")
        assert told["token"].startswith("ya29.")
        assert told["preempted"] == "FALSE"
        assert told["zone"].endswith("/zones/us-central1-b")
        assert told["scheduling"]["preemptible"] == "TRUE"
        service.publish("node-0", lead_s=30.0)
        assert (await says(GOOGLE, service))["preempted"] == "TRUE"

    serving("gcp", body)


def test_google_auth_hangs_until_the_notice() -> None:
    async def body(service: MetadataService) -> None:
        waiting = asyncio.create_task(client(GOOGLE_WAITS, service))
        async with asyncio.timeout(60.0):
            while service.requests("node-0") == 0:  # noqa: ASYNC110 - a count has no events
                await asyncio.sleep(0.01)
        assert not waiting.done()
        service.publish("node-0", lead_s=30.0)
        assert await waiting == "TRUE"

    serving("gcp", body)


def test_google_auth_tries_again() -> None:
    async def body(service: MetadataService) -> None:
        service.misbehave(m.Status(status=503, first=2, paths="/computeMetadata/*"))
        assert (await says(GOOGLE, service))["project"] == "chaosspot"

    serving("gcp", body)


# --- azure-identity -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", [None, m.Status(status=410, first=1), m.Status(status=500, first=1)]
)
def test_azure_identity(what: m.MisbehaviourKind | None) -> None:
    async def body(service: MetadataService) -> None:
        if what is not None:
            service.misbehave(what)
        told = await says(AZURE, service)
        assert len(told["token"]) > 100
        assert 0 < told["left_s"] <= 86400
        assert service.requests("node-0") == (1 if what is None else 2)

    serving("azure", body)
