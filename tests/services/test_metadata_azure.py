"""The Azure core alone: no socket, no clock."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from chaosspot.services.metadata import AzureSettings, azure
from chaosspot.services.metadata.azure_events import API_VERSIONS
from chaosspot.services.metadata.values import (
    Document,
    Instance,
    Moment,
    Notice,
    Request,
    Response,
    Wait,
)

EVENTS = "/metadata/scheduledevents"
NEWEST = "2020-07-01"
DEADLINE_S = 1740564793.0  # Wed, 26 Feb 2025 10:13:13 GMT
TRUE = {"metadata": "true"}


def document(
    *,
    zone: str = "b",
    pool: str = "spot",
    group: str = "workers",
    notices: tuple[Notice, ...] = (),
    called_s: float | None = None,
    last_called_s: float = -math.inf,
    **settings: Any,
) -> Document:
    instance = Instance(node="node-0", zone=zone, family="NC4", pool=pool, group=group)
    return Document(
        instance=instance,
        run="run",
        number=37,
        region=azure.region(instance, default=azure.DEFAULT_REGION),
        started_wall_s=0.0,
        settings=AzureSettings(**settings),
        token_key=b"k",
        notices=notices,
        called_s=called_s,
        last_called_s=last_called_s,
    )


def notice(action: str = "preempt", **more: Any) -> Notice:
    """Seen from 10 s on, and due at 40 s."""
    given: dict[str, Any] = {
        "id": "602d9444-d2cd-49c7-8624-8643e7171297",
        "action": action,
        "slot": action,
        "nodes": ("node-0",),
        "resources": ("workers_37",),
        "visible_s": 10.0,
        "starts_s": 40.0,
        "issued_wall_s": DEADLINE_S - 30,
        "deadline_wall_s": DEADLINE_S,
    }
    return Notice(**(given | more))


def at(now_s: float) -> Moment:
    return Moment(now_s=now_s, wall_s=DEADLINE_S - 40 + now_s)


def request(
    path: str,
    *,
    version: str | None = NEWEST,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    body: bytes = b"",
    query: tuple[tuple[str, str], ...] = (),
) -> Request:
    named = (("api-version", version),) if version is not None else ()
    return Request(
        method=method,
        path=path,
        headers=TRUE if headers is None else headers,
        query=(*named, *query),
        body=body,
    )


def get(path: str, about: Document | None = None, *, now_s: float = 20.0, **more: Any) -> Response:
    response = azure.respond(request(path, **more), about or document(), at(now_s))
    assert isinstance(response, Response)
    return response


def told(about: Document, *, now_s: float = 20.0, version: str = NEWEST) -> Any:
    return json.loads(get(EVENTS, about, now_s=now_s, version=version).body)


# --- the form of requests -----------------------------------------------------------------------


@pytest.mark.parametrize("path", [EVENTS, "/metadata/instance", "/metadata/versions"])
def test_the_header_is_required_and_forwarding_refused(path: str) -> None:
    version = "2019-08-01"
    assert get(path, version=version).status == 200
    assert get(path, version=version, headers={"metadata": "True"}).status == 200
    missing = get(path, version=version, headers={})
    assert missing.status == 400
    assert "Required metadata header not specified" in json.loads(missing.body)["error"]
    assert get(path, version=version, headers={"metadata": "false"}).status == 400
    assert get(path, version=version, headers={**TRUE, "x-forwarded-for": "::1"}).status == 400


def test_the_preview_needs_no_header_and_marks_names() -> None:
    about = document(notices=(notice("reboot"),))
    preview = get(EVENTS, about, version="2017-03-01", headers={})
    assert json.loads(preview.body)["Events"][0]["Resources"] == ["_workers_37"]
    assert get(EVENTS, about, version="2017-08-01", headers={}).status == 400


@pytest.mark.parametrize("version", [None, "", "latest", "{latest}", "2020-07-02"])
@pytest.mark.parametrize("path", [EVENTS, "/metadata/instance"])
def test_a_version_is_required(version: str | None, path: str) -> None:
    response = get(path, version=version)
    error = json.loads(response.body)
    assert response.status == 400
    assert error["error"].startswith("Bad request. api-version is invalid or was not specified")
    assert error["newest-versions"] == sorted(error["newest-versions"], reverse=True)
    assert len(error["newest-versions"]) == 3


def test_a_wrong_version_may_be_told_less_of_for_events() -> None:
    about = document(version_error_told=False)
    assert "newest-versions" not in json.loads(get(EVENTS, about, version=None).body)
    assert b"newest-versions" in get("/metadata/instance", about, version=None).body


def test_a_name_may_stand_in_the_query_once() -> None:
    assert get(EVENTS, query=(("api-version", NEWEST),)).status == 400


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/metadata", "GET", 404),
        ("/metadata/instance/nothing", "GET", 404),
        ("/metadata/instance/network/interface/1", "GET", 404),
        (EVENTS, "PUT", 405),
        ("/metadata/instance", "POST", 405),
        ("/metadata/identity/oauth2/token", "POST", 405),
    ],
)
def test_errors(path: str, method: str, status: int) -> None:
    assert get(path, method=method, version="2021-02-01").status == status


# --- events -------------------------------------------------------------------------------------


def test_no_events_are_an_empty_list() -> None:
    response = get(EVENTS)
    assert (response.status, response.tells_notice) == (200, False)
    assert json.loads(response.body) == {"DocumentIncarnation": 1, "Events": []}
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"


def test_an_event_is_scheduled_then_started_then_gone() -> None:
    about = document(notices=(notice(closed_s=60.0),))
    (scheduled,), (started,) = told(about, now_s=10.0)["Events"], told(about, now_s=40.0)["Events"]
    assert scheduled == {
        "EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": ["workers_37"],
        "NotBefore": "Wed, 26 Feb 2025 10:13:13 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
    assert started == {**scheduled, "EventStatus": "Started", "NotBefore": ""}
    incarnations = [told(about, now_s=s)["DocumentIncarnation"] for s in (9, 10, 39, 40, 59, 60)]
    assert incarnations == [1, 2, 2, 3, 3, 4]
    assert told(about, now_s=60.0)["Events"] == []


def test_a_withdrawn_event_was_never_started() -> None:
    about = document(notices=(notice(closed_s=20.0, withdrawn=True),))
    assert told(about, now_s=50.0) == {"DocumentIncarnation": 3, "Events": []}


def test_without_a_lead_it_has_started_at_once() -> None:
    about = document(notices=(notice("reboot", starts_s=10.0),))
    assert told(about, now_s=10.0)["Events"][0]["EventStatus"] == "Started"
    assert told(about, now_s=10.0)["DocumentIncarnation"] == 2


@pytest.mark.parametrize(
    ("action", "closed_s", "duration_s"),
    [("freeze", 45.0, 5), ("reboot", math.inf, -1), ("preempt", 45.0, -1)],
)
def test_how_long_it_takes(action: str, closed_s: float, duration_s: int) -> None:
    about = document(notices=(notice(action, closed_s=closed_s),))
    assert told(about)["Events"][0]["DurationInSeconds"] == duration_s


@pytest.mark.parametrize(
    ("version", "preempt", "terminate", "fields"),
    [
        ("2017-08-01", False, False, 6),
        ("2017-11-01", True, False, 6),
        ("2019-01-01", True, True, 6),
        ("2019-04-01", True, True, 7),
        ("2019-08-01", True, True, 8),
        ("2020-07-01", True, True, 9),
    ],
)
def test_what_each_version_knows(version: str, preempt: bool, terminate: bool, fields: int) -> None:
    about = document(notices=(notice("reboot"), notice("preempt"), notice("terminate")))
    events = told(about, version=version)["Events"]
    kinds = {event["EventType"] for event in events}
    assert ("Preempt" in kinds, "Terminate" in kinds) == (preempt, terminate)
    assert "Reboot" in kinds
    assert {len(event) for event in events} == {fields}


def test_the_events_of_other_nodes_are_seen_but_are_not_this_ones() -> None:
    other = notice(nodes=("node-1",), resources=("workers_38",))
    response = get(EVENTS, document(notices=(other,)))
    assert json.loads(response.body)["Events"][0]["Resources"] == ["workers_38"]
    assert not response.tells_notice
    assert get(EVENTS, document(notices=(other, notice()))).tells_notice


def test_the_first_call_waits_and_turns_events_on() -> None:
    about = document(first_call_delay_s=20.0, events_after_s=30.0, notices=(notice(),))
    about = azure.seen(request(EVENTS), about, at(5.0))
    assert azure.respond(request(EVENTS), about, at(5.0)) == Wait(until_s=25.0)
    about = azure.seen(request(EVENTS), about, at(25.0))
    assert told(about, now_s=25.0) == {"DocumentIncarnation": 1, "Events": []}
    assert len(told(about, now_s=35.0)["Events"]) == 1
    day = azure.seen(request(EVENTS), about, at(25.0 + 24 * 3600))
    assert day.called_s == 5.0
    stale = azure.seen(request(EVENTS), about, at(26.0 + 24 * 3600))
    assert stale.called_s == 26.0 + 24 * 3600


def test_a_refused_call_does_not_count_as_the_first() -> None:
    about = azure.seen(request(EVENTS, headers={}), document(), at(5.0))
    assert about.called_s is None


# --- approval -----------------------------------------------------------------------------------


def approve(about: Document, body: Any, now_s: float = 20.0) -> tuple[int, Document]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = request(EVENTS, method="POST", body=raw)
    after = azure.seen(asked, about, at(now_s))
    response = azure.respond(asked, after, at(now_s))
    assert isinstance(response, Response)
    return response.status, after


def test_an_approval_brings_the_event_forward_for_all_resources() -> None:
    both = notice(nodes=("node-0", "node-1"), resources=("workers_37", "workers_38"))
    about = document(notices=(both,), start_after_s=3.0)
    status, after = approve(about, {"StartRequests": [{"EventId": both.id}]})
    assert status == 200
    states = {s: told(after, now_s=s)["Events"][0]["EventStatus"] for s in (20.0, 22.9, 23.0)}
    assert states == {20.0: "Scheduled", 22.9: "Scheduled", 23.0: "Started"}
    assert told(after, now_s=20.0) == told(about, now_s=20.0)
    again, later = approve(after, {"StartRequests": [{"EventId": both.id.upper()}]}, now_s=21.0)
    assert (again, later.notices) == (200, after.notices)


def test_an_approval_never_puts_an_event_off() -> None:
    about = document(notices=(notice(),), start_after_s=100.0)
    _, after = approve(about, {"StartRequests": [{"EventId": notice().id}]})
    assert after.notices[0].starts_s == 40.0


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[]", b"1", {}, {"StartRequests": []}, {"StartRequests": [1]},
        {"StartRequests": 1}, {"StartRequests": [{"EventId": 1}]},
        {"StartRequests": [{"EventId": "x"}]}, {"StartRequests": {"EventId": "x"}},
        {"StartRequests": [{"EventId": notice().id}, {"EventId": "x"}]},
        b"[" * 60000,
    ],
)  # fmt: skip
def test_a_bad_approval_is_refused_and_changes_nothing(body: Any) -> None:
    about = document(notices=(notice(),))
    status, after = approve(about, body)
    assert (status, after.notices) == (400, about.notices)


# --- the instance -------------------------------------------------------------------------------


def instance(about: Document) -> Any:
    return json.loads(get("/metadata/instance", about, version="2021-02-01").body)


def strings(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(strings, value.values()))
    return all(map(strings, value)) if isinstance(value, list) else isinstance(value, str)


def test_the_instance_document() -> None:
    compute = instance(document())["compute"]
    assert compute["name"] == "workers_37"
    assert compute["osProfile"]["computerName"] == "workers000011"  # 37 in base 36
    assert (compute["vmScaleSetName"], compute["vmSize"]) == ("workers", "NC4")
    assert (compute["priority"], compute["evictionPolicy"]) == ("Spot", "Delete")
    assert (compute["location"], compute["zone"]) == ("eastus", "2")
    reserved = instance(document(pool="reserved", zone="westeurope-3"))["compute"]
    assert (reserved["priority"], reserved["evictionPolicy"]) == ("Regular", "")
    assert (reserved["location"], reserved["zone"]) == ("westeurope", "3")


def test_everything_in_it_is_a_string() -> None:
    assert strings(instance(document()))


def test_leaves_and_listings_are_text() -> None:
    text = (("format", "text"),)
    name = "/metadata/instance/compute/name"
    assert get(name, version="2021-02-01", query=text).body == b"workers_37"
    assert get(name, version="2021-02-01").status == 400
    assert get("/metadata/instance", version="2021-02-01", query=text).body == b"compute/\nnetwork/"
    address = "/metadata/instance/network/interface/0/ipv4/ipAddress/0/privateIpAddress"
    assert get(address, version="2021-02-01", query=text).body == b"10.0.0.37"


def test_versions_need_no_version() -> None:
    versions = json.loads(get("/metadata/versions", version=None).body)["apiVersions"]
    assert {"2021-02-01", "2025-04-07"} <= set(versions)
    assert API_VERSIONS[-1] == NEWEST


def test_a_token_of_the_managed_identity() -> None:
    path = "/metadata/identity/oauth2/token"
    asked = (("resource", "https://management.azure.com/"),)
    response = get(path, version="2018-02-01", query=asked)
    told = json.loads(response.body)
    assert (told["token_type"], told["resource"]) == ("Bearer", asked[0][1])
    assert 0 < int(told["expires_in"]) <= 86400
    assert get(path, version="2018-02-01").status == 400
    assert get(path, version="2018-02-01", query=asked, headers={}).status == 400
