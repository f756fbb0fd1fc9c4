"""Misbehaviours: who is struck, and what arrives on the wire."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from asking import PATHS, parts, raw, serving
from waiting import until

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import AzureSettings, Instance, MetadataService
from chaosspot.services.metadata.misbehaving import Active, Plan, Tally, decide, resets_accept

# --- deciding -----------------------------------------------------------------------------------


def run_of(
    what: m.MisbehaviourKind, *, times_s: list[float], node: str = "node-0", path: str = "/x"
) -> list[Plan]:
    """The plans for requests at these times."""
    tallies: dict[int, Tally] = {}
    plans = []
    for now_s in times_s:
        entry = Active(number=7, what=what, since_s=0.0)
        plan, changed = decide([entry], tallies, node=node, path=path, now_s=now_s)
        tallies |= changed
        plans.append(plan)
    return plans


def struck(what: m.MisbehaviourKind, count: int, **more: Any) -> list[bool]:
    return [plan != Plan() for plan in run_of(what, times_s=[0.0] * count, **more)]


def test_a_rate_holds_and_its_choice_depends_on_seed_and_node_alone() -> None:
    def choice(seed: int, node: str) -> list[bool]:
        return struck(m.BlackHole(rate=0.25, seed=seed), 4000, node=node)

    first = choice(1, "node-0")
    # four standard deviations of a binomial with p = 0.25
    assert abs(sum(first) - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5
    assert first == choice(1, "node-0")
    assert first != choice(2, "node-0")
    assert first != choice(1, "node-1")


def test_patterns_choose_nodes_and_paths() -> None:
    what = m.BlackHole(nodes="node-[01]", paths="/latest/api/*")
    assert struck(what, 1, path="/latest/api/token") == [True]
    assert struck(what, 1, path="/latest/meta-data/") == [False]
    assert struck(what, 1, path="/latest/api/token", node="node-2") == [False]


def test_only_the_first_requests_that_match_count() -> None:
    assert struck(m.Status(status=503, first=2), 4) == [True, True, False, False]


def test_it_ends_by_itself() -> None:
    plans = run_of(m.Status(status=401, lasts_s=60.0), times_s=[0.0, 59.9, 60.0])
    assert [plan.status for plan in plans] == [401, 401, None]


def test_a_limit_strikes_what_is_above_it_in_each_second() -> None:
    limit = m.Status(status=429, above_per_s=2)
    plans = run_of(limit, times_s=[5.1, 5.2, 5.3, 5.9, 6.0, 6.1, 6.2])
    assert [plan.status for plan in plans] == [None, None, 429, 429, None, None, 429]


def test_delays_add_up_and_their_jitter_varies() -> None:
    plans = run_of(m.Latency(delay_s=1.0, jitter_s=2.0), times_s=[0.0] * 50)
    delays = [plan.delay_s for plan in plans]
    assert 1.0 <= min(delays) < 1.5
    assert 2.5 < max(delays) < 3.0
    entries = [Active(number=n, what=m.Latency(delay_s=0.5), since_s=0.0) for n in (1, 2)]
    assert decide(entries, {}, node="n", path="/", now_s=0.0)[0].delay_s == 1.0


def test_a_reset_when_accepted_is_decided_apart() -> None:
    entry = Active(number=1, what=m.Reset(first=1), since_s=0.0)
    assert decide([entry], {}, node="n", path="/", now_s=0.0) == (Plan(), {})
    hit, tallies = resets_accept([entry], {}, node="n", now_s=0.0)
    assert (hit, resets_accept([entry], tallies, node="n", now_s=0.0)[0]) == (True, False)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("latency", {}),
        ("latency", {"delay_s": -1}),
        ("latency", {"delay_s": 1, "rate": 0}),
        ("latency", {"delay_s": 1, "rate": 1.5}),
        ("latency", {"delay_s": 1, "delays": 1}),
        ("status", {"status": 200}),
        ("body", {"body": "json"}),
        ("content-type", {"content_type": "a\r\nb"}),
        ("reset", {"stage": "accept", "paths": "/x"}),
        ("closed", {"paths": "/x"}),
        ("skew", {"skew_s": 1e9}),
        ("duplicate", {"every_s": 0}),
        ("nothing", {}),
    ],
)
def test_bad_values_are_refused(kind: str, given: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": kind, **given}, m.MisbehaviourKind)  # type: ignore[arg-type]


# --- on the wire --------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", PATHS)
def test_an_overridden_status_is_an_error_of_that_cloud(cloud: str) -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=60.0)
        number = service.misbehave(m.Status(status=503))
        status, headers, page = parts(await raw(base, PATHS[cloud]))
        assert (status, b"503" in page or b"Unavailable" in page) == (503, True)
        assert headers["Server"] == {
            "aws": "EC2ws", "gcp": "Metadata Server for VM", "azure": "IMDS"
        }[cloud]  # fmt: skip
        assert service.reads("node-0") == 0
        await service.behave(number)
        assert parts(await raw(base, PATHS[cloud]))[0] == 200
        assert (service.reads("node-0"), service.requests("node-0")) == (1, 2)

    serving(cloud, body)


@pytest.mark.parametrize("kind", ["html", "empty"])
@pytest.mark.parametrize("cloud", PATHS)
def test_a_body_that_is_not_the_value(cloud: str, kind: Any) -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=60.0)
        service.misbehave(m.Body(body=kind))
        status, headers, page = parts(await raw(base, PATHS[cloud]))
        assert status == 200
        assert page.startswith(b"<!DOCTYPE html>") if kind == "html" else page == b""
        assert (headers["Content-Type"] == "text/html") == (kind == "html")
        assert service.reads("node-0") == 0

    serving(cloud, body)


def test_the_same_body_under_another_content_type() -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=60.0)
        plain = parts(await raw(base, PATHS["aws"]))
        service.misbehave(m.ContentType(content_type="application/json"))
        other = parts(await raw(base, PATHS["aws"]))
        assert (plain[1]["Content-Type"], plain[2]) == ("text/plain", other[2])
        assert other[1]["Content-Type"] == "application/json"

    serving("aws", body)


def test_latency() -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.misbehave(m.Latency(delay_s=0.3))
        began_s = time.monotonic()
        assert parts(await raw(base, PATHS["gcp"]))[0] == 200
        assert time.monotonic() - began_s >= 0.3

    serving("gcp", body)


def test_a_black_hole_never_answers_and_forgets_who_leaves() -> None:
    async def body(service: MetadataService, base: str) -> None:
        number = service.misbehave(m.BlackHole(paths="/latest/meta-data/spot/*"))
        idle = len(asyncio.all_tasks())
        waiting = asyncio.create_task(raw(base, PATHS["aws"]))
        await until(lambda: service.requests("node-0") == 1)
        assert parts(await raw(base, "/latest/meta-data/instance-id"))[0] == 200
        assert not waiting.done()
        waiting.cancel()
        await until(lambda: len(asyncio.all_tasks()) == idle)
        await service.behave(number)
        assert parts(await raw(base, PATHS["aws"]))[0] == 404

    serving("aws", body)


@pytest.mark.parametrize(
    ("stage", "begins"), [("accept", b""), ("head", b"HTTP/1.1 200 OK\r\n"), ("body", b"FA")]
)
def test_a_reset_at_each_stage(stage: Any, begins: bytes) -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.misbehave(m.Reset(stage=stage, first=1))
        with pytest.raises(ConnectionResetError) as caught:
            await raw(base, PATHS["gcp"])
        got = caught.value.args[0]
        if stage == "body":
            head, _, rest = got.partition(b"\r\n\r\n")
            assert (b"Content-Length: 5" in head, rest) == (True, begins)
        else:
            assert got.startswith(begins)
            assert b"\r\n\r\n" not in got
        assert parts(await raw(base, PATHS["gcp"]))[2] == b"FALSE"

    serving("gcp", body)


HANGS = PATHS["gcp"] + "?wait_for_change=true"


def hanging(what: m.MisbehaviourKind, then: Any) -> None:
    """A request hangs, the service begins to misbehave, and ``then`` looks at both."""

    async def body(service: MetadataService, base: str) -> None:
        idle = service.misbehave(m.Latency(delay_s=60.0, paths="/nothing"))
        asked = asyncio.create_task(raw(base, HANGS))
        await until(lambda: service.requests("node-0") == 1)
        number = service.misbehave(what)
        try:
            await then(service, asked)
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        assert service.struck("node-0", number) == 1
        assert service.struck("node-0", idle) == 0

    serving("gcp", body)


def test_a_request_that_waits_is_refused_when_that_begins() -> None:
    async def then(_: MetadataService, asked: asyncio.Task[bytes]) -> None:
        assert parts(await asked)[0] == 503

    hanging(m.Status(status=503), then)


def test_a_request_that_waits_gets_the_page_in_place_of_what_it_waits_for() -> None:
    async def then(service: MetadataService, asked: asyncio.Task[bytes]) -> None:
        service.publish("node-0", lead_s=60.0)
        assert parts(await asked)[2].startswith(b"<!DOCTYPE html>")
        assert service.reads("node-0") == 0

    hanging(m.Body(body="html"), then)


def test_a_request_that_waits_falls_into_the_hole_too() -> None:
    async def then(service: MetadataService, asked: asyncio.Task[bytes]) -> None:
        service.publish("node-0", lead_s=60.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asked), timeout=0.2)
        assert service.reads("node-0") == 0

    hanging(m.BlackHole(), then)


def test_a_request_that_waits_is_late_and_still_told() -> None:
    async def then(service: MetadataService, asked: asyncio.Task[bytes]) -> None:
        service.publish("node-0", lead_s=60.0)
        began_s = time.monotonic()
        assert parts(await asked)[2] == b"TRUE"
        assert time.monotonic() - began_s > 0.2
        assert service.reads("node-0") == 1

    hanging(m.Latency(delay_s=0.3), then)


def test_what_is_struck_is_counted_and_nothing_else() -> None:
    async def body(service: MetadataService, base: str) -> None:
        errors = service.misbehave(m.Status(status=503, first=2))
        elsewhere = service.misbehave(m.Status(status=503, nodes="other"))
        statuses = [parts(await raw(base, PATHS["aws"]))[0] for _ in range(3)]
        assert statuses == [503, 503, 404]
        assert service.struck("node-0", errors) == 2
        assert service.struck("node-0", elsewhere) == 0
        resets = service.misbehave(m.Reset(first=1))
        with pytest.raises(ConnectionResetError):
            await raw(base, PATHS["aws"])
        assert parts(await raw(base, PATHS["aws"]))[0] == 404
        assert service.struck("node-0", resets) == 1

    serving("aws", body)


@pytest.mark.parametrize("how", ["told", "time"])
def test_a_closed_listener_comes_back_at_its_address(how: str) -> None:
    async def body(service: MetadataService, base: str) -> None:
        other = await service.add(Instance(node="other", zone="a", family="f", pool="spot"))
        address = urlsplit(base)
        reader, kept = await asyncio.open_connection(address.hostname, address.port)
        kept.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"computeMetadata/\n")
        lasts_s = 0.2 if how == "time" else None
        number = service.misbehave(m.Closed(nodes="node-*", lasts_s=lasts_s))
        assert await reader.read() == b""
        kept.close()
        with pytest.raises(ConnectionRefusedError):
            await raw(base, PATHS["gcp"])
        assert parts(await raw(other, PATHS["gcp"]))[0] == 200
        if how == "told":
            await service.behave(number)
            assert parts(await raw(base, PATHS["gcp"]))[0] == 200
            return
        deadline_s = time.monotonic() + 15.0
        while True:
            try:
                assert parts(await raw(base, PATHS["gcp"]))[0] == 200
                return
            except ConnectionRefusedError:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.01)

    serving("gcp", body)


def test_tokens_die_early_or_at_once() -> None:
    async def body(service: MetadataService, base: str) -> None:
        async def read(token: str) -> int:
            answer = await raw(base, PATHS["aws"], **{"X-aws-ec2-metadata-token": token})
            return parts(answer)[0]

        async def token() -> str:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            answer = await raw(base, "/latest/api/token", method="PUT", **ttl)
            return parts(answer)[2].decode()

        first = await token()
        assert await read(first) == 404
        service.kill_tokens("node-0")
        assert (await read(first), await read(await token())) == (401, 404)
        number = service.misbehave(m.TokenKill(after_s=0.0))
        assert await read(await token()) == 401
        await service.behave(number)
        assert await read(await token()) == 404

    serving("aws", body)


async def told(base: str, cloud: str) -> tuple[int, dict[str, str], bytes]:
    return parts(await raw(base, PATHS[cloud]))


def deadline(answer: bytes) -> str:
    """The deadline that an answer tells, in whatever way."""
    found = json.loads(answer)
    return str(found["time"] if "time" in found else found["Events"][0]["NotBefore"])


@pytest.mark.parametrize("skew_s", [90.0, -90.0])
def test_a_skew_moves_the_time_told_but_not_the_date(skew_s: float) -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=120.0)
        assert deadline((await told(base, "aws"))[2]) == "1970-01-01T00:18:40Z"
        service.misbehave(m.Skew(skew_s=skew_s))
        _, headers, answer = await told(base, "aws")
        assert deadline(answer) == f"1970-01-01T00:{'20' if skew_s > 0 else '17'}:10Z"
        assert headers["Date"] == "Thu, 01 Jan 1970 00:16:40 GMT"

    serving("aws", body, wall=lambda: 1000.0)


def test_a_notice_for_the_far_future_stays_scheduled() -> None:
    async def body(service: MetadataService, base: str) -> None:
        service.misbehave(m.FarFuture(ahead_s=14 * 86400.0))
        service.publish("node-0", lead_s=0.0)
        _, _, answer = await told(base, "azure")
        assert deadline(answer) == "Thu, 15 Jan 1970 00:16:40 GMT"
        assert json.loads(answer)["Events"][0]["EventStatus"] == "Scheduled"

    serving("azure", body, wall=lambda: 1000.0)


def test_a_notice_is_withdrawn_by_itself() -> None:
    clock = [50.0]

    async def body(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=60.0)
        service.misbehave(m.Withdraw(after_s=10.0))
        statuses = []
        for now_s in (50.0, 59.9, 60.0):
            clock[0] = now_s
            statuses.append((await told(base, "aws"))[0])
        assert statuses == [200, 200, 404]

    serving("aws", body, monotonic=lambda: clock[0])


def test_a_notice_is_told_again_as_if_new() -> None:
    clock = [50.0]
    every = m.Duplicate(every_s=10.0)

    async def aws(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=60.0)
        service.misbehave(every)
        first = (await told(base, "aws"))[2]
        clock[0] = 59.0
        assert (await told(base, "aws"))[2] == first
        clock[0] = 60.0
        assert (await told(base, "aws"))[2] != first

    async def azure(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=600.0)
        service.misbehave(every)
        first = json.loads((await told(base, "azure"))[2])
        clock[0] = 75.0
        later = json.loads((await told(base, "azure"))[2])
        assert later["Events"] == first["Events"]
        assert later["DocumentIncarnation"] == first["DocumentIncarnation"] + 2

    async def gcp(service: MetadataService, base: str) -> None:
        service.publish("node-0", lead_s=600.0)
        service.misbehave(every)
        first = await told(base, "gcp")
        clock[0] = 60.0
        later = await told(base, "gcp")
        assert (first[2], later[2]) == (b"TRUE", b"TRUE")
        assert first[1]["ETag"] != later[1]["ETag"]

    for cloud, body in {"aws": aws, "azure": azure, "gcp": gcp}.items():
        clock[0] = 50.0
        serving(cloud, body, monotonic=lambda: clock[0])


def test_azure_answers_five_requests_a_second() -> None:
    async def body(service: MetadataService, base: str) -> None:
        statuses = [(await told(base, "azure"))[0] for _ in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        assert service.misbehaviours() == ()
        with pytest.raises(ValueError, match="misbehaviour=0: not in force"):
            await service.behave(0)

    serving("azure", body, settings=AzureSettings(), monotonic=lambda: 5.0)


def test_tokens_can_be_killed_where_there_are_any() -> None:
    async def body(service: MetadataService, base: str) -> None:
        for kill in (
            lambda: service.kill_tokens("node-0"),
            lambda: service.misbehave(m.TokenKill(after_s=1.0)),
        ):
            with pytest.raises(ValueError, match="only provider='aws'"):
                kill()
        assert service.misbehaviours() == ()

    serving("gcp", body)


def test_what_has_ended_by_itself_is_not_in_force() -> None:
    clock = [5.0]

    async def body(service: MetadataService, base: str) -> None:
        number = service.misbehave(m.Status(status=503, lasts_s=10.0))
        clock[0] = 14.9
        assert [entry.number for entry in service.misbehaviours()] == [number]
        clock[0] = 15.0
        assert service.misbehaviours() == ()
        assert parts(await raw(base, PATHS["aws"]))[0] == 404

    serving("aws", body, monotonic=lambda: clock[0])


def test_only_what_is_in_force_can_be_stopped() -> None:
    async def body(service: MetadataService, base: str) -> None:
        number = service.misbehave(m.BlackHole(nodes="x"))
        with pytest.raises(ValueError, match=f"misbehaviour=99: not in force.*: {number}"):
            await service.behave(99)
        assert [entry.number for entry in service.misbehaviours()] == [number]
        await service.behave(number)
        assert service.misbehaviours() == ()

    serving("aws", body)
