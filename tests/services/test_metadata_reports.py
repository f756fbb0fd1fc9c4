"""What users of the real services have reported, reproduced: one test a report.

Reports about what a node or its processes do are not here: those are for the harness.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from asking import PATHS, parts, raw, serving
from waiting import until

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AwsSettings, AzureSettings, GcpSettings, Instance
from chaosspot.services.metadata import MetadataService as Service

TOKEN = "/latest/api/token"
META = "/latest/meta-data/"
IDENTITY = "/latest/dynamic/instance-identity/document"
TTL = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
REQUIRED = AwsSettings(tokens_required=True)


async def status(base: str, path: str, **more: str) -> int:
    return parts(await raw(base, path, **more))[0]


async def body(base: str, path: str, **more: str) -> str:
    return parts(await raw(base, path, **more))[2].decode()


async def events(base: str) -> Any:
    return json.loads(await body(base, PATHS["azure"]))


async def token(base: str) -> dict[str, str]:
    return {"X-aws-ec2-metadata-token": await body(base, TOKEN, method="PUT", **TTL)}


async def hangs(service: Service, base: str, path: str, **more: str) -> bool:
    """Whether a request gets there and is not answered while another one is."""
    before = service.requests("node-0")
    asked = asyncio.create_task(raw(base, path, **more))
    await until(lambda: service.requests("node-0") > before)
    await raw(base, "/metadata/versions")
    asked.cancel()
    return not asked.done()


def test_nth_668_a_fresh_token_is_refused_for_a_while() -> None:
    async def play(service: Service, base: str) -> None:
        number = service.misbehave(m.Status(status=401, paths=META + "*"))
        for _ in range(3):
            assert await status(base, PATHS["aws"], **await token(base)) == 401
        await service.behave(number)
        assert await status(base, PATHS["aws"], **await token(base)) == 404

    serving("aws", play, settings=REQUIRED)


def test_nth_732_tokens_are_required_and_cannot_be_had() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.BlackHole(paths=TOKEN))
        assert await status(base, META + "instance-id") == 401
        assert await hangs(service, base, TOKEN, method="PUT", **TTL)

    serving("aws", play, settings=REQUIRED)


def test_nth_399_the_hop_limit_takes_the_token_but_not_the_old_way() -> None:
    async def play(service: Service, base: str) -> None:
        assert await hangs(service, base, TOKEN, method="PUT", **TTL)
        assert await status(base, META + "instance-id") == 200

    serving("aws", play, settings=AwsSettings(tokens_required=False, hops=1))


def test_nth_916_a_burst_of_503_at_the_start() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.Status(status=503, paths=IDENTITY, first=3))
        assert [await status(base, IDENTITY) for _ in range(4)] == [503, 503, 503, 200]
        assert await status(base, META + "instance-id") == 200

    serving("aws", play)


def test_nth_21_the_listener_is_away_for_a_while() -> None:
    async def play(service: Service, base: str) -> None:
        number = service.misbehave(m.Closed())
        with pytest.raises(ConnectionRefusedError):
            await raw(base, PATHS["aws"])
        service.publish("node-0", lead_s=120.0)
        await service.behave(number)
        assert await status(base, PATHS["aws"]) == 200

    serving("aws", play)


def test_nth_74_connections_are_accepted_and_never_answered() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.BlackHole(paths="/latest/*"))
        assert await hangs(service, base, PATHS["aws"])

    serving("aws", play)


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_nth_361_and_903_an_event_two_weeks_ahead(cloud: str) -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.FarFuture(ahead_s=14 * 86400.0))
        action = "system-reboot" if cloud == "aws" else "reboot"
        service.publish("node-0", lead_s=600.0, action=action)
        if cloud == "aws":
            (event,) = json.loads(await body(base, META + "events/maintenance/scheduled"))
            assert event["NotBefore"] == "15 Jan 1970 00:10:00 GMT"
        else:
            (event,) = (await events(base))["Events"]
            assert event["NotBefore"] == "Thu, 15 Jan 1970 00:10:00 GMT"
            assert event["EventStatus"] == "Scheduled"

    serving(cloud, play, wall=lambda: 0.0)


def test_nth_321_a_rebalance_and_no_interruption() -> None:
    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=0.0, action="rebalance")
        path = META + "events/recommendations/rebalance"
        assert len({await body(base, path) for _ in range(3)}) == 1
        assert await status(base, PATHS["aws"]) == 404

    serving("aws", play)


def test_nth_416_the_lifecycle_ends_without_a_rebalance() -> None:
    async def play(service: Service, base: str) -> None:
        path = META + "autoscaling/target-lifecycle-state"
        assert await body(base, path) == "InService"
        service.publish("node-0", lead_s=120.0, action="asg-terminate")
        assert await body(base, path) == "Terminated"
        assert await status(base, META + "events/recommendations/rebalance") == 404

    serving("aws", play, settings=AwsSettings(tokens_required=False, autoscaling=True))


def test_ec2_spot_labs_23_the_directory_is_absent_and_its_404_a_page() -> None:
    async def play(service: Service, base: str) -> None:
        for path in (META + "spot/", PATHS["aws"], META + "spot/termination-time"):
            code, headers, page = parts(await raw(base, path))
            assert (code, headers["Content-Type"]) == (404, "text/html")
            assert page.startswith(b"<?xml")

    serving("aws", play)


def test_aemm_207_json_under_two_content_types() -> None:
    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=120.0)
        plain = parts(await raw(base, PATHS["aws"]))
        service.misbehave(m.ContentType(content_type="application/json"))
        json_ = parts(await raw(base, PATHS["aws"]))
        kinds = [headers["Content-Type"] for _, headers, _ in (plain, json_)]
        assert (kinds, plain[2]) == (["text/plain", "application/json"], json_[2])

    serving("aws", play)


def test_flashinfer_2403_without_a_token_nothing_is_told() -> None:
    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=120.0)
        assert await status(base, PATHS["aws"]) == 401
        assert service.reads("node-0") == 0

    serving("aws", play, settings=REQUIRED)


def test_lifecycled_84_two_signals_in_one_second() -> None:
    async def play(service: Service, base: str) -> None:
        for action in ("asg-terminate", "terminate"):
            service.publish("node-0", lead_s=120.0, action=action)
        assert await body(base, META + "autoscaling/target-lifecycle-state") == "Terminated"
        assert await status(base, PATHS["aws"]) == 200
        assert len({notice.issued_wall_s for notice in service.notices("node-0")}) == 1

    serving("aws", play, wall=lambda: 7.0)


def test_deadline_cloud_1083_no_answer_and_404_are_two_things() -> None:
    async def play(service: Service, base: str) -> None:
        known = await token(base)
        number = service.misbehave(m.BlackHole(paths=META + "*"))
        assert await hangs(service, base, PATHS["aws"], **known)
        await service.behave(number)
        assert await status(base, PATHS["aws"], **known) == 404

    serving("aws", play, settings=REQUIRED)


def test_nth_1022_the_node_is_gone_long_before_its_time() -> None:
    clock = [50.0]

    async def play(service: Service, base: str) -> None:
        deadline_wall_s = service.publish("node-0", lead_s=120.0)
        clock[0] += 39.0
        told = json.loads(await body(base, PATHS["aws"], **await token(base)))
        assert told["time"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(deadline_wall_s))
        await service.remove("node-0")
        with pytest.raises(ConnectionRefusedError):
            await raw(base, PATHS["aws"])
        with pytest.raises(ValueError, match="node='node-0': it is gone"):
            service.publish("node-0", lead_s=120.0)

    serving("aws", play, monotonic=lambda: clock[0])


def test_capg_112_who_hangs_is_told_of_a_flag_that_a_slow_poll_misses() -> None:
    async def play(service: Service, base: str) -> None:
        asked = asyncio.create_task(body(base, PATHS["gcp"] + "?wait_for_change=true"))
        await until(lambda: service.requests("node-0") == 1)
        service.publish("node-0", lead_s=3.0)
        assert await asyncio.wait_for(asked, timeout=2.0) == "TRUE"
        assert service.reads("node-0") == 1
        await service.remove("node-0")  # three seconds later, a poll of five comes too late
        with pytest.raises(ConnectionRefusedError):
            await raw(base, PATHS["gcp"])

    serving("gcp", play)


def test_taskcluster_6987_preempted_at_the_first_look() -> None:
    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=0.0)
        assert await body(base, PATHS["gcp"]) == "TRUE"
        assert await body(base, PATHS["gcp"] + "?wait_for_change=true&last_etag=0") == "TRUE"

    serving("gcp", play)


def test_sct_4373_a_hanging_get_is_cut_in_its_answer() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.Reset(stage="body"))
        asked = asyncio.create_task(raw(base, PATHS["gcp"] + "?wait_for_change=true"))
        await until(lambda: service.requests("node-0") == 1)
        service.publish("node-0", lead_s=30.0)
        with pytest.raises(ConnectionResetError) as caught:
            await asked
        assert caught.value.args[0].endswith(b"\r\n\r\nTR")
        assert service.reads("node-0") == 0

    serving("gcp", play)


def test_sct_4373_an_answer_that_comes_later_than_its_timeout() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.Latency(delay_s=0.6))
        began_s = time.monotonic()
        assert await body(base, PATHS["gcp"] + "?wait_for_change=true&timeout_sec=0") == "FALSE"
        assert time.monotonic() - began_s >= 0.6

    serving("gcp", play)


def test_preemption_exporter_3_the_key_is_hidden_and_others_are_not() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.Status(status=404, paths="*/instance/preempted"))
        service.publish("node-0", lead_s=30.0)
        code, headers, _ = parts(await raw(base, PATHS["gcp"]))
        assert (code, headers["Content-Type"]) == (404, "text/html; charset=UTF-8")
        assert await body(base, "/computeMetadata/v1/instance/name") == "node-0"
        assert service.reads("node-0") == 0

    serving("gcp", play)


def test_clusterfuzz_5414_an_optional_key_is_missing() -> None:
    async def play(service: Service, base: str) -> None:
        assert await status(base, "/computeMetadata/v1/instance/attributes/nothing") == 404

    serving("gcp", play)


@pytest.mark.parametrize(("mode", "first"), [("notice", "TRUE"), ("acpi", "FALSE")])
def test_karpenter_gcp_295_the_flag_and_the_shutdown_details(mode: Any, first: str) -> None:
    clock = [100.0]

    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=120.0)
        details = "/computeMetadata/v1/instance/shutdown-details/stop-state"
        seen = []
        for clock[0] in (100.0, 220.0):
            seen.append(await body(base, PATHS["gcp"]))
            assert await body(base, details) == "UNKNOWN"
        assert seen == [first, "TRUE"]

    settings = GcpSettings(preemption=mode)
    serving("gcp", play, settings=settings, monotonic=lambda: clock[0])


def test_scuttle_208_no_events_are_a_200() -> None:
    async def play(service: Service, base: str) -> None:
        assert (await status(base, PATHS["azure"]), (await events(base))["Events"]) == (200, [])

    serving("azure", play)


def test_aks_nth_53_the_same_event_under_new_incarnations_and_slow_answers() -> None:
    clock = [100.0]

    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=300.0)
        service.misbehave(m.Duplicate(every_s=1.0))
        service.misbehave(m.Latency(delay_s=0.3, jitter_s=0.2))
        began_s = time.monotonic()
        told = []
        for clock[0] in (100.0, 101.0, 102.0):
            told.append(await events(base))
        assert time.monotonic() - began_s >= 0.9
        assert len({document["DocumentIncarnation"] for document in told}) == 3
        assert len({document["Events"][0]["EventId"] for document in told}) == 1

    serving("azure", play, monotonic=lambda: clock[0])


def test_taskcluster_7916_a_preemption_is_told_thirty_seconds_before() -> None:
    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=30.0)
        (event,) = (await events(base))["Events"]
        assert event["NotBefore"] == "Thu, 01 Jan 1970 00:00:30 GMT"

    serving("azure", play, wall=lambda: 0.0)


def test_aks_3719_an_event_stays_started() -> None:
    clock = [100.0]

    async def play(service: Service, base: str) -> None:
        service.publish("node-0", lead_s=0.0)
        told = []
        for clock[0] in (100.0, 400.0, 700.0):
            told.append(await events(base))
        assert told[0] == told[1] == told[2]
        (event,) = told[0]["Events"]
        assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")

    serving("azure", play, monotonic=lambda: clock[0])


def test_resource_agents_1986_names_differ_and_others_events_are_seen() -> None:
    async def play(service: Service, base: str) -> None:
        await service.add(Instance(node="node-1", zone="a", family="f", pool="spot", group="g"))
        service.publish("node-1", lead_s=30.0)
        told = await raw(base, "/metadata/instance?api-version=2021-02-01")
        compute = json.loads(parts(told)[2])["compute"]
        (event,) = (await events(base))["Events"]
        assert (compute["name"], event["Resources"]) == ("g_0", ["g_1"])
        assert compute["osProfile"]["computerName"] == "g000000"
        assert service.reads("node-0") == 0

    serving("azure", play)


def test_afterburn_459_a_long_outage_and_then_a_notice() -> None:
    clock = [100.0]

    async def play(service: Service, base: str) -> None:
        service.misbehave(m.Status(status=503, lasts_s=180.0))
        seen = []
        for clock[0] in (100.0, 279.0, 280.0):
            service.publish("node-0", lead_s=300.0)
            seen.append(await status(base, PATHS["azure"]))
        assert seen == [503, 503, 200]

    serving("azure", play, monotonic=lambda: clock[0])


def test_net_utils_120_throttled_answers_are_empty_and_requests_are_counted() -> None:
    async def play(service: Service, base: str) -> None:
        service.misbehave(m.Body(body="empty", paths=META + "*"))
        seen = [parts(await raw(base, META + "instance-id")) for _ in range(3)]
        assert [(code, page) for code, _, page in seen] == [(200, b"")] * 3
        assert service.requests("node-0") == 3

    serving("aws", play)


def test_karpenter_aws_5400_all_nodes_are_noticed_in_one_second() -> None:
    async def play(service: Service, base: str) -> None:
        bases = [base]
        for number in range(1, 20):
            node = Instance(node=f"node-{number}", zone="a", family="f", pool="spot")
            bases.append(await service.add(node))
        service.publish_all(service.nodes(), lead_s=120.0)
        assert await asyncio.gather(*(status(b, PATHS["aws"]) for b in bases)) == [200] * 20

    serving("aws", play)


def test_skypilot_7117_the_service_is_not_ready_at_the_start() -> None:
    async def play(service: Service, base: str) -> None:
        assert (await status(base, PATHS["azure"]), (await events(base))["Events"]) == (200, [])

    began_s = time.monotonic()
    serving("azure", play, settings=AzureSettings(first_call_delay_s=0.5))
    assert time.monotonic() - began_s >= 0.5
