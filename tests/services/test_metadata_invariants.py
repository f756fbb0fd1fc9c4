"""What must hold whatever is announced, and whenever: versions go with contents, one to one."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from asking import PATHS, parts, raw
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosspot.services.metadata import (
    AzureSettings,
    GcpSettings,
    Instance,
    MetadataService,
    azure,
    gcp,
)
from chaosspot.services.metadata.values import (
    Document,
    Moment,
    Notice,
    Provider,
    Request,
    Response,
)

TIMES = st.integers(0, 12).map(float)
HEADERS = {"metadata": "true", "metadata-flavor": "Google"}


@st.composite
def notices(draw: st.DrawFn, provider: Provider) -> Notice:
    visible_s = draw(TIMES)
    starts_s = visible_s + draw(TIMES)
    action = draw(st.sampled_from(sorted(provider.ACTIONS)))
    return Notice(
        id=str(draw(st.integers(0, 10**9))),
        action=action,
        slot=provider.ACTIONS[action],
        nodes=("node-0",),
        resources=("g_0",),
        visible_s=visible_s,
        starts_s=starts_s,
        issued_wall_s=1e9 + visible_s,
        deadline_wall_s=1e9 + starts_s,
        closed_s=draw(st.just(math.inf) | TIMES),
        unarmed=draw(st.booleans()),
        repeat_every_s=draw(st.sampled_from([math.inf, math.inf, 2.5])),
    )


def document(provider: Provider, options: Any, published: list[Notice]) -> Document:
    return Document(
        instance=Instance(node="node-0", zone="a", family="f", pool="spot", group="g"),
        run="run",
        number=0,
        region=provider.DEFAULT_REGION,
        started_wall_s=1e9,
        settings=options,
        token_key=b"k",
        notices=tuple(published),
    )


def read(provider: Provider, about: Document, path: str, now_s: float, **query: str) -> Response:
    request = Request(method="GET", path=path, headers=HEADERS, query=tuple(query.items()))
    response = provider.respond(request, about, Moment(now_s=now_s, wall_s=1e9 + now_s))
    assert isinstance(response, Response)
    return response


@given(st.lists(notices(azure), max_size=4), st.lists(TIMES, min_size=2, max_size=6))
def test_one_incarnation_has_one_content_and_they_only_grow(
    published: list[Notice], times: list[float]
) -> None:
    about = document(azure, AzureSettings(), published)
    found: dict[int, Any] = {}
    before = 0
    for now_s in sorted(times):
        path, version = "/metadata/scheduledevents", {"api-version": "2020-07-01"}
        told = json.loads(read(azure, about, path, now_s, **version).body)
        assert told["DocumentIncarnation"] >= before
        before = told["DocumentIncarnation"]
        assert found.setdefault(before, told) == told


@given(st.lists(notices(gcp), max_size=4), st.lists(TIMES, min_size=2, max_size=6))
def test_one_etag_has_one_value(published: list[Notice], times: list[float]) -> None:
    about = document(gcp, GcpSettings(), published)
    for path in ("instance/preempted", "instance/maintenance-event", "instance/"):
        found: dict[str, bytes] = {}
        for now_s in times:
            query = {"recursive": "true"} if path.endswith("/") else {}
            answer = read(gcp, about, f"/computeMetadata/v1/{path}", now_s, **query)
            assert found.setdefault(answer.headers["ETag"], answer.body) == answer.body


@given(st.lists(notices(gcp), max_size=4), TIMES, TIMES)
def test_an_etag_stays_when_nothing_changes(
    published: list[Notice], one_s: float, other_s: float
) -> None:
    about = document(gcp, GcpSettings(), published)
    first_s, last_s = sorted((one_s, other_s))
    path = "/computeMetadata/v1/instance/preempted"
    etags = [read(gcp, about, path, s).headers["ETag"] for s in (first_s, last_s)]
    own = [n for n in published if n.slot == "interruption"]
    changed = any(n.next_change_s(first_s) <= last_s for n in own)
    assert (etags[0] != etags[1]) == changed


@given(st.lists(notices(gcp), max_size=4), TIMES)
def test_whoever_waits_looks_again_at_the_very_change(
    published: list[Notice], now_s: float
) -> None:
    about = document(gcp, GcpSettings(), published)
    path = "/computeMetadata/v1/instance/"
    at_s = about.next_change_s(now_s)
    before = read(gcp, about, path, now_s, recursive="true").headers["ETag"]
    if math.isinf(at_s):
        assert read(gcp, about, path, 1e6, recursive="true").headers["ETag"] == before
        return
    assert at_s > now_s
    just_before = read(gcp, about, path, math.nextafter(at_s, 0.0), recursive="true")
    assert just_before.headers["ETag"] == before
    assert read(gcp, about, path, at_s, recursive="true").headers["ETag"] != before


operations = st.lists(
    st.tuples(
        st.sampled_from(["publish", "withdraw", "end", "approve", "remove", "wait"]),
        st.sets(st.sampled_from(["node-0", "node-1", "node-2"]), min_size=1),
        st.sampled_from(["preempt", "reboot"]),
        st.sampled_from([0.0, 5.0]),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(operations)
def test_all_of_a_scale_set_see_one_history(steps: list[tuple[str, set[str], str, float]]) -> None:
    clock = [100.0]

    async def act(service: MetadataService, base: str, step: Any) -> None:
        what, nodes, action, lead_s = step
        live = sorted(nodes & set(service.nodes()))
        if what == "wait":
            clock[0] += lead_s + 1.0
        elif what == "publish" and live:
            service.publish_all(live, lead_s=lead_s, action=action)
        elif what == "approve":
            told = json.loads(parts(await raw(base, PATHS["azure"]))[2])
            ids = [{"EventId": event["EventId"]} for event in told["Events"]]
            text = json.dumps({"StartRequests": ids})
            await raw(base, PATHS["azure"], method="POST", body=text)
        for node in live:
            if what in ("withdraw", "end"):
                getattr(service, what)(node, action)
            elif what == "remove" and node != "node-0":
                await service.remove(node)

    async def main() -> None:
        options = AzureSettings(requests_per_s=None)
        async with MetadataService(
            provider="azure", settings=options, monotonic=lambda: clock[0]
        ) as service:
            for number in range(3):
                name = f"node-{number}"
                await service.add(Instance(node=name, zone="a", family="f", pool="spot", group="g"))
            base = service.endpoint("node-0")
            seen: dict[int, Any] = {}
            last = 0
            for step in steps:
                await act(service, base, step)
                for node in service.nodes():
                    answer = await raw(service.endpoint(node), PATHS["azure"])
                    told = json.loads(parts(answer)[2])
                    assert told["DocumentIncarnation"] >= last
                    last = told["DocumentIncarnation"]
                    assert seen.setdefault(last, told) == told
                    named = {n for event in told["Events"] for n in event["Resources"]}
                    live = {f"g_{name.removeprefix('node-')}" for name in service.nodes()}
                    assert named <= live

    asyncio.run(main())
