"""The Google Cloud core alone: no socket, no clock."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from chaosspot.services.metadata import GcpSettings, gcp
from chaosspot.services.metadata.values import (
    Document,
    Instance,
    Moment,
    Notice,
    Request,
    Response,
    Wait,
)

V1 = "/computeMetadata/v1/"
DEADLINE_S = 1772100793.0  # 2026-02-26T10:13:13Z
FLAVOR = {"metadata-flavor": "Google"}


def document(
    *,
    zone: str = "b",
    pool: str = "spot",
    tags: dict[str, str] | None = None,
    notices: tuple[Notice, ...] = (),
    last_called_s: float = -math.inf,
    **settings: Any,
) -> Document:
    instance = Instance(
        node="node-0", zone=zone, family="e2-standard-4", pool=pool, tags=tags or {}
    )
    return Document(
        instance=instance,
        run="run",
        number=3,
        region=gcp.region(instance, default=gcp.DEFAULT_REGION),
        started_wall_s=0.0,
        settings=GcpSettings(**settings),
        token_key=b"k",
        notices=notices,
        last_called_s=last_called_s,
    )


def notice(action: str, **more: Any) -> Notice:
    """Seen from 10 s on, and due at 130 s."""
    given: dict[str, Any] = {
        "id": "id",
        "action": action,
        "slot": gcp.ACTIONS[action],
        "nodes": ("node-0",),
        "resources": ("node-0",),
        "visible_s": 10.0,
        "starts_s": 130.0,
        "issued_wall_s": DEADLINE_S - 120,
        "deadline_wall_s": DEADLINE_S,
    }
    return Notice(**(given | more))


def look(
    path: str,
    about: Document,
    *,
    now_s: float = 20.0,
    asked_s: float | None = None,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    **query: str,
) -> Response | Wait:
    request = Request(
        method=method,
        path=path if path.startswith("/") else V1 + path,
        headers=FLAVOR if headers is None else headers,
        query=tuple(query.items()),
        asked_s=now_s if asked_s is None else asked_s,
    )
    return gcp.respond(request, about, Moment(now_s=now_s, wall_s=DEADLINE_S - 130 + now_s))


def get(path: str, about: Document | None = None, **more: Any) -> Response:
    response = look(path, document() if about is None else about, **more)
    assert isinstance(response, Response)
    return response


# --- the form of requests and answers -----------------------------------------------------------


def test_the_root_needs_no_header() -> None:
    response = get("/", headers={})
    assert (response.status, response.body) == (200, b"computeMetadata/\n")
    assert response.headers["Metadata-Flavor"] == "Google"
    assert "ETag" not in response.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"metadata-flavor": "google"}, 404),
        ({"metadata-flavor": "Google"}, 200),
        ({"x-google-metadata-request": "True"}, 200),
        ({"metadata-flavor": "Google", "x-forwarded-for": "10.0.0.1"}, 403),
    ],
)
def test_the_flavor_rule(headers: dict[str, str], status: int) -> None:
    assert get("instance/name", headers=headers).status == status


def test_a_wrong_flavor_may_get_another_status() -> None:
    about = document(wrong_flavor_status=403)
    assert get("instance/name", about, headers={"metadata-flavor": "x"}).status == 403


def test_the_headers_of_a_value() -> None:
    headers = dict(get("instance/name").headers)
    assert int(headers.pop("ETag"), 16) > 0
    assert headers == {
        "Metadata-Flavor": "Google",
        "Content-Type": "application/text",
        "Server": "Metadata Server for VM",
        "X-XSS-Protection": "0",
        "X-Frame-Options": "SAMEORIGIN",
    }


def test_a_missing_key_is_a_page() -> None:
    for path in ("instance/nothing", "instance/name/x", "/computeMetadata/v2/", "/latest/"):
        response = get(path)
        assert response.status == 404
        assert response.headers["Content-Type"] == "text/html; charset=UTF-8"


def test_other_methods_are_refused() -> None:
    assert get("instance/name", method="POST").status == 405


def test_a_directory_without_its_slash_is_redirected() -> None:
    response = get("instance", recursive="true")
    assert response.status == 301
    assert response.headers["Location"] == V1 + "instance/?recursive=true"
    assert get("instance/name/").body == b"node-0"


def test_listings() -> None:
    assert get("").body == b"instance/\nproject/\n"
    assert (
        get("instance/scheduling/").body == b"automatic-restart\non-host-maintenance\npreemptible\n"
    )
    assert get("instance/scheduling/").headers["Content-Type"] == "application/text"


@pytest.mark.parametrize(
    ("pool", "name", "value"),
    [
        ("spot", "scheduling/preemptible", "TRUE"),
        ("reserved", "scheduling/preemptible", "FALSE"),
        ("reserved", "scheduling/on-host-maintenance", "MIGRATE"),
        ("spot", "preempted", "FALSE"),
        ("spot", "maintenance-event", "NONE"),
        ("spot", "machine-type", "projects/123456789012/machineTypes/e2-standard-4"),
        ("spot", "zone", "projects/123456789012/zones/us-central1-b"),
        ("spot", "hostname", "node-0.c.chaosspot.internal"),
        ("spot", "virtual-clock/drift-token", "0"),
        ("spot", "shutdown-details/stop-state", "UNKNOWN"),
    ],
)
def test_values(pool: str, name: str, value: str) -> None:
    assert get(f"instance/{name}", document(pool=pool)).body.decode() == value


def test_zones_and_regions() -> None:
    about = document(zone="europe-west4-c")
    assert about.region == "europe-west4"
    assert get("instance/zone", about).body.endswith(b"/zones/europe-west4-c")


def test_an_id_is_a_large_number() -> None:
    number = int(get("instance/id").body)
    assert 2**53 < number < 2**64
    assert json.loads(get("instance/", recursive="true").body)["id"] == number


def test_recursive_is_json_in_camel_case() -> None:
    about = document(tags={"my-key": "v"})
    response = get("", about, recursive="True")
    assert response.headers["Content-Type"] == "application/json"
    told = json.loads(response.body)
    assert told["project"] == {
        "attributes": {}, "numericProjectId": 123456789012, "projectId": "chaosspot"
    }  # fmt: skip
    assert told["instance"]["attributes"] == {"my-key": "v"}
    assert told["instance"]["networkInterfaces"][0]["ip"] == "10.0.0.3"
    assert told["instance"]["maintenanceEvent"] == "NONE"
    assert set(told["instance"]["serviceAccounts"]["default"]) == {"aliases", "email", "scopes"}


def test_recursive_as_text() -> None:
    response = get("instance/scheduling/", recursive="true", alt="text")
    assert response.body.decode().splitlines()[2] == "preemptible TRUE"
    assert response.headers["Content-Type"] == "application/text"


def test_alt() -> None:
    assert get("instance/tags").body == b"[]"
    assert get("instance/tags", alt="text").body == b""
    scopes = "instance/service-accounts/default/scopes"
    assert get(scopes, alt="text").body == b"https://www.googleapis.com/auth/cloud-platform"
    assert get("instance/name", alt="json").body == b'"node-0"'
    bare = get("instance/name", document(json_scalars_quoted=False), alt="json")
    assert bare.body == b"node-0"


@pytest.mark.parametrize(
    "query",
    [{"alt": "xml"}, {"recursive": "1"}, {"timeout_sec": "-1"}, {"timeout_sec": "1.5"}],
)
def test_bad_parameters(query: dict[str, str]) -> None:
    assert get("instance/name", **query).status == 400


def test_a_service_accounts_token() -> None:
    path = "instance/service-accounts/default/token"
    first, later = (json.loads(get(path, now_s=s).body) for s in (0.0, 100.0))
    assert set(first) == {"access_token", "expires_in", "token_type"}
    assert first["access_token"] == later["access_token"]
    assert first["expires_in"] - later["expires_in"] == 100
    assert get(path, wait_for_change="true").status == 400
    assert get("instance/service-accounts/other/token").status == 404
    assert get(path, document(scopes=())).status == 404


# --- what is announced --------------------------------------------------------------------------


def test_preempted_turns_and_stays() -> None:
    about = document(notices=(notice("preempt"),))
    values = {s: get("instance/preempted", about, now_s=s).body for s in (9.9, 10.0, 5000.0)}
    assert values == {9.9: b"FALSE", 10.0: b"TRUE", 5000.0: b"TRUE"}
    assert get("instance/preempted", about).tells_notice
    assert get("", about, recursive="true").tells_notice
    assert not get("instance/name", about).tells_notice
    assert not get("instance/preempted").tells_notice


def test_by_acpi_the_flag_turns_only_at_the_deadline() -> None:
    about = document(preemption="acpi")
    assert gcp.announced(notice("preempt"), about).visible_s == 130.0
    assert gcp.announced(notice("preempt"), document()).visible_s == 10.0


@pytest.mark.parametrize("action", ["migrate", "terminate"])
def test_a_maintenance_event_comes_and_goes(action: str) -> None:
    about = document(notices=(notice(action, closed_s=200.0),))
    path = "instance/maintenance-event"
    values = [get(path, about, now_s=s).body.decode() for s in (9.0, 10.0, 200.0)]
    assert values == ["NONE", f"{action.upper()}_ON_HOST_MAINTENANCE", "NONE"]


def test_a_maintenance_event_is_armed_by_asking() -> None:
    asked = Request(method="GET", path=V1 + "instance/maintenance-event", headers=FLAVOR)
    other = Request(method="GET", path=V1 + "instance/preempted", headers=FLAVOR)
    idle = document(arming=True)
    moment = Moment(now_s=5.0, wall_s=0.0)
    assert gcp.announced(notice("migrate"), gcp.seen(other, idle, moment)).unarmed
    armed = gcp.seen(asked, idle, moment)
    assert not gcp.announced(notice("migrate"), armed).unarmed
    again = document(arming=True, notices=(notice("migrate"),), last_called_s=5.0)
    assert gcp.announced(notice("migrate", visible_s=300.0), again).unarmed
    assert not gcp.announced(notice("migrate"), document(arming=False)).unarmed
    unarmed = document(notices=(notice("migrate", unarmed=True),))
    assert get("instance/maintenance-event", unarmed).body == b"NONE"


def test_upcoming_maintenance() -> None:
    assert get("instance/upcoming-maintenance/").status == 404
    about = document(notices=(notice("upcoming-maintenance"),))
    path = "instance/upcoming-maintenance/"
    told = json.loads(get(path, about, recursive="true").body)
    assert told["windowStartTime"] == "2026-02-26T10:13:13Z"
    assert (told["maintenanceStatus"], told["type"]) == ("PENDING", "SCHEDULED")


def test_shutdown_details_tell_of_a_stop_but_not_of_a_preemption() -> None:
    path = "instance/shutdown-details/stop-state"
    assert get(path, document(notices=(notice("preempt"),))).body == b"UNKNOWN"
    assert get(path, document(notices=(notice("stop"),))).body == b"PENDING_STOP"
    assert get(path, document(idle_stop_state=None)).status == 404


# --- ETags and hanging GETs ---------------------------------------------------------------------


def etag(path: str, about: Document, now_s: float, **query: str) -> str:
    return get(path, about, now_s=now_s, **query).headers["ETag"]


def test_an_etag_changes_with_its_value_alone() -> None:
    about = document(notices=(notice("preempt"), notice("migrate", visible_s=50.0)))
    flag = "instance/preempted"
    assert etag(flag, about, 0.0) == etag(flag, about, 9.0)
    assert etag(flag, about, 9.0) != etag(flag, about, 10.0)
    assert etag(flag, about, 10.0) == etag(flag, about, 60.0)
    assert etag("instance/name", about, 9.0) == etag("instance/name", about, 60.0)
    whole = [etag("", about, s, recursive="true") for s in (9.0, 10.0, 60.0)]
    assert len(set(whole)) == 3


def test_a_value_that_returns_has_a_new_etag() -> None:
    about = document(notices=(notice("preempt", closed_s=20.0),))
    assert get("instance/preempted", about, now_s=20.0).body == b"FALSE"
    assert etag("instance/preempted", about, 20.0) != etag("instance/preempted", about, 9.0)


def test_without_a_last_etag_it_waits_for_the_next_change() -> None:
    about = document(notices=(notice("preempt"),))
    waits = {"wait_for_change": "true", "asked_s": 5.0}
    assert look("instance/preempted", about, now_s=5.0, **waits) == Wait(until_s=10.0)
    assert get("instance/preempted", about, now_s=10.0, **waits).body == b"TRUE"
    assert look("instance/name", about, now_s=10.0, **waits) == Wait(until_s=130.0)


def test_a_last_etag_that_differs_is_answered_at_once() -> None:
    about = document(notices=(notice("preempt"),))
    current = etag("instance/preempted", about, 20.0)
    wait = {"wait_for_change": "TRUE"}
    for other in ("0", "NONE", etag("instance/preempted", about, 5.0)):
        assert get("instance/preempted", about, last_etag=other, **wait).body == b"TRUE"
    assert isinstance(look("instance/preempted", about, last_etag=current, **wait), Wait)


def test_after_its_timeout_the_same_value_is_answered() -> None:
    waits = {"wait_for_change": "true", "timeout_sec": "60", "asked_s": 100.0}
    assert look("instance/preempted", document(), now_s=100.0, **waits) == Wait(until_s=160.0)
    answer = get("instance/preempted", document(), now_s=160.0, **waits)
    assert (answer.status, answer.body) == (200, b"FALSE")
    assert answer.headers["ETag"] == etag("instance/preempted", document(), 0.0)


def test_the_whole_tree_can_be_waited_for_but_not_a_listing() -> None:
    assert get("instance/", wait_for_change="true").status == 400
    hang = look("instance/", document(), wait_for_change="true", recursive="true")
    assert hang == Wait(until_s=math.inf)
