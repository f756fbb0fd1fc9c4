"""The AWS core alone: no socket, no clock."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from chaosspot.services.metadata import AwsSettings, aws
from chaosspot.services.metadata.aws_tree import instance_id
from chaosspot.services.metadata.values import (
    Document,
    Instance,
    Moment,
    Notice,
    Request,
    Response,
    Wait,
)

TTL = "x-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "x-aws-ec2-metadata-token"
DEADLINE_S = 1505722920.0  # 2017-09-18T08:22:00Z
META = "/latest/meta-data/"


def document(
    *,
    node: str = "node-0",
    run: str = "run",
    zone: str = "b",
    pool: str = "spot",
    key: bytes = b"k",
    tags: dict[str, str] | None = None,
    notices: tuple[Notice, ...] = (),
    token_life_s: float = math.inf,
    **settings: Any,
) -> Document:
    instance = Instance(node=node, zone=zone, family="p4d.24xlarge", pool=pool, tags=tags or {})
    return Document(
        instance=instance,
        run=run,
        number=3,
        region=aws.region(instance, default="us-east-1"),
        started_wall_s=0.0,
        settings=AwsSettings(**settings),
        token_key=key,
        notices=notices,
        token_life_s=token_life_s,
    )


def notice(action: str, **more: Any) -> Notice:
    """Published 120 s before its deadline, which is 120 s on the monotonic clock."""
    given: dict[str, Any] = {
        "id": "0123abcd-0000-4000-a000-000000000000",
        "action": action,
        "slot": aws.ACTIONS[action],
        "nodes": ("node-0",),
        "resources": ("i-0",),
        "visible_s": 0.0,
        "starts_s": 120.0,
        "issued_wall_s": DEADLINE_S - 120,
        "deadline_wall_s": DEADLINE_S,
    }
    return Notice(**(given | more))


def noticed(action: str, **more: Any) -> Document:
    return document(notices=(notice(action),), **more)


def at(now_s: float) -> Moment:
    return Moment(now_s=now_s, wall_s=DEADLINE_S - 120 + now_s)


def respond(request: Request, about: Document, *, now_s: float = 0.0) -> Response:
    response = aws.respond(request, about, at(now_s))
    assert isinstance(response, Response)
    return response


def ask(
    path: str, about: Document, *, method: str = "GET", now_s: float = 0.0, **headers: str
) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return respond(Request(method=method, path=path, headers=named), about, now_s=now_s)


def token_of(about: Document, *, ttl_s: int = 60, now_s: float = 0.0) -> str:
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: str(ttl_s)})
    return respond(request, about, now_s=now_s).body.decode()


def read(path: str, about: Document, *, now_s: float = 0.0) -> Response:
    headers = {TOKEN: token_of(about, now_s=now_s)}
    return respond(Request(method="GET", path=path, headers=headers), about, now_s=now_s)


def test_a_token_looks_like_a_real_one() -> None:
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: "21600"})
    response = respond(request, document(), now_s=5.0)
    assert response.status == 200
    assert response.headers == {
        "Server": "EC2ws",
        "Connection": "close",
        "Content-Type": "text/plain",
        "Accept-Ranges": "none",
        "X-aws-ec2-metadata-token-ttl-seconds": "21600",
    }
    assert len(response.body) == 56
    assert response.body.endswith(b"==")


@pytest.mark.parametrize(
    "ttl", [None, "", "0", "-1", "21601", "1.5", "60s", " 60", "+60", "٣", "9" * 40]
)
def test_a_bad_lifetime_is_refused(ttl: str | None) -> None:
    headers = {} if ttl is None else {TTL: ttl}
    request = Request(method="PUT", path="/latest/api/token", headers=headers)
    response = respond(request, document(), now_s=0.0)
    assert response.status == 400
    assert b"<title>400 - Bad Request</title>" in response.body


@pytest.mark.parametrize("ttl", ["1", "21600"])
def test_the_lifetimes_at_the_edges_are_granted(ttl: str) -> None:
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: ttl})
    assert respond(request, document(), now_s=0.0).status == 200


def test_a_forwarded_put_is_refused_and_so_is_a_version_path() -> None:
    headers = {TTL: "60", "x-forwarded-for": "10.0.0.1"}
    forwarded = Request(method="PUT", path="/latest/api/token", headers=headers)
    assert respond(forwarded, document(), now_s=0.0).status == 403
    dated = Request(method="PUT", path="/2021-03-23/api/token", headers={TTL: "60"})
    assert respond(dated, document(), now_s=0.0).status == 403


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/latest/api/token", "OPTIONS, PUT"),
        ("POST", "/latest/api/token", "OPTIONS, PUT"),
        ("DELETE", "/latest/api/token", "OPTIONS, PUT"),
        ("POST", META + "instance-id", "GET, HEAD"),
        ("PUT", META + "instance-id", "GET, HEAD"),
    ],
)
def test_a_wrong_method(method: str, path: str, allowed: str) -> None:
    response = ask(path, document(), method=method)
    assert (response.status, response.body) == (405, b"")
    assert response.headers == {
        "Server": "EC2ws",
        "Connection": "close",
        "Content-Type": "text/plain",
        "Allow": allowed,
    }


def test_tokens_expire_by_the_clock_that_is_passed_in() -> None:
    about = document()
    token = token_of(about, ttl_s=10, now_s=100.0)
    left = {}
    for now_s in (100.0, 104.5, 109.9):
        response = ask(META + "instance-id", about, now_s=now_s, **{TOKEN: token})
        left[now_s] = (response.status, response.headers.get(aws._TTL_HEADER))
    assert left == {100.0: (200, "10"), 104.5: (200, "5"), 109.9: (200, "0")}
    expired = ask(META + "instance-id", about, now_s=110.0, **{TOKEN: token})
    assert expired.status == 401
    assert b"<title>401 - Unauthorized</title>" in expired.body


@pytest.mark.parametrize("token", ["", "x", "é", "A" * 56, "=" * 56])
@pytest.mark.parametrize("required", [True, False])
def test_an_unknown_token_is_refused_even_where_none_is_needed(token: str, required: bool) -> None:
    about = document(tokens_required=required)
    assert ask(META + "instance-id", about, **{TOKEN: token}).status == 401


def test_the_token_of_another_instance_is_unknown() -> None:
    token = token_of(document(key=b"other"))
    assert ask(META + "instance-id", document(), **{TOKEN: token}).status == 401


def test_without_a_token_only_where_it_is_optional() -> None:
    assert ask(META + "instance-id", document()).status == 401
    plain = ask(META + "instance-id", document(tokens_required=False))
    assert plain.status == 200
    assert aws._TTL_HEADER not in plain.headers


def test_the_headers_of_a_value() -> None:
    assert read(META + "instance-type", document()).headers == {
        "Server": "EC2ws",
        "Connection": "close",
        "Content-Type": "text/plain",
        "Accept-Ranges": "none",
        "Last-Modified": "Thu, 01 Jan 1970 00:00:00 GMT",
        "X-aws-ec2-metadata-token-ttl-seconds": "60",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instance-type", "p4d.24xlarge"),
        ("instance-life-cycle", "spot"),
        ("instance-action", "none"),
        ("placement/availability-zone", "us-east-1b"),
        ("placement/region", "us-east-1"),
    ],
)
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("version", ["latest", "2021-03-23", "1.0"])
def test_values(name: str, value: str, slash: str, version: str) -> None:
    assert read(f"/{version}/meta-data/{name}{slash}", document()).body.decode() == value


def test_a_reserved_node_is_on_demand() -> None:
    assert read(META + "instance-life-cycle", document(pool="reserved")).body == b"on-demand"


def test_an_instance_id_depends_on_run_and_node_alone() -> None:
    first = instance_id(document(run="a", node="n"))
    assert first == instance_id(document(run="a", node="n", zone="c")) == "i-" + first[2:]
    assert len(first) == 19
    others = [document(run="a", node="m"), document(run="an", node="n")]
    assert first not in map(instance_id, others)


@pytest.mark.parametrize(
    ("zone", "served", "region"),
    [
        ("a", "us-east-1a", "us-east-1"),
        ("us-west-2b", "us-west-2b", "us-west-2"),
        ("us-gov-west-1a", "us-gov-west-1a", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2-lax-1a", "us-west-2"),
        ("rack-7", "rack-7", "us-east-1"),
    ],
)
def test_zones_and_regions(zone: str, served: str, region: str) -> None:
    about = document(zone=zone)
    assert read(META + "placement/availability-zone", about).body.decode() == served
    assert read(META + "placement/region", about).body.decode() == region


def test_listings_with_and_without_slash() -> None:
    about = document()
    for slash in ("", "/"):
        names = read(f"/latest/meta-data{slash}", about).body.decode().split("\n")
        assert names == sorted(names)
        assert {"ami-id", "events/", "iam/", "instance-id", "placement/", "services/"} <= {*names}
        placement = read(f"/latest/meta-data/placement{slash}", about)
        assert placement.body == b"availability-zone\nregion"
        assert read(f"/latest{slash}", about).body == b"dynamic\nmeta-data"
    versions = read("/", about).body.decode().split("\n")
    assert (versions[0], versions[-1]) == ("1.0", "latest")


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/latest/meta-data/nothing", META + "instance-id/x", "//latest", META + "/"],
)
def test_unknown_paths_are_an_xhtml_page(path: str) -> None:
    response = read(path, document())
    assert response.status == 404
    assert response.headers["Content-Type"] == "text/html"
    assert response.body.startswith(b'<?xml version="1.0" encoding="iso-8859-1"?>')
    assert b"<title>404 - Not Found</title>" in response.body
    assert b"<h1>404 - Not Found</h1>" in response.body


@pytest.mark.parametrize("name", ["spot", "spot/", "spot/instance-action", "spot/termination-time"])
def test_before_the_notice_the_whole_directory_is_absent(name: str) -> None:
    response = read(META + name, document())
    assert (response.status, response.tells_notice) == (404, False)


def test_a_notice_to_terminate() -> None:
    about = noticed("terminate")
    told = read(META + "spot/instance-action", about)
    assert told.body == b'{"action":"terminate","time":"2017-09-18T08:22:00Z"}'
    assert told.tells_notice
    assert told.headers["Content-Type"] == "text/plain"
    assert told.headers["Last-Modified"] == "Mon, 18 Sep 2017 08:20:00 GMT"
    time = read(META + "spot/termination-time", about)
    assert (time.body, time.tells_notice) == (b"2017-09-18T08:22:00Z", True)
    listing = read(META + "spot/", about)
    assert (listing.body, listing.tells_notice) == (b"instance-action\ntermination-time", False)
    assert b"spot/" in read(META, about).body
    assert read(META + "instance-action", about).body == b"none"


@pytest.mark.parametrize("action", ["stop", "hibernate"])
def test_other_actions_have_no_termination_time(action: str) -> None:
    about = noticed(action)
    assert json.loads(read(META + "spot/instance-action", about).body)["action"] == action
    assert read(META + "spot/termination-time", about).status == 404
    assert read(META + "spot/", about).body == b"instance-action"


@pytest.mark.parametrize(
    ("field", "value"), [("node", ""), ("zone", ""), ("family", "a\nb"), ("pool", "sp0t")]
)
def test_a_bad_instance_is_named(field: str, value: str) -> None:
    good = {"node": "n", "zone": "a", "family": "f", "pool": "spot"}
    with pytest.raises(ValueError, match=f"{field}={value!r}".replace("\\", r"\\")):
        Instance(**(good | {field: value}))


# --- what else a notice can be ----------------------------------------------------------------


def test_rebalance_is_advice_that_tells_when_it_was_given() -> None:
    path = META + "events/recommendations/rebalance"
    assert read(path, document()).status == 404
    told = read(path, noticed("rebalance"))
    assert (told.body, told.tells_notice) == (b'{"noticeTime":"2017-09-18T08:20:00Z"}', True)
    assert read(META + "spot/", noticed("rebalance")).status == 404


def test_an_idle_instance_has_an_empty_list_of_events() -> None:
    for name in ("scheduled", "history"):
        assert read(META + f"events/maintenance/{name}", document()).body == b"[]"
    absent = document(idle_maintenance="absent")
    assert read(META + "events/maintenance/scheduled", absent).status == 404


def test_a_scheduled_event() -> None:
    told = read(META + "events/maintenance/scheduled", noticed("system-reboot"))
    assert told.tells_notice
    (event,) = json.loads(told.body)
    assert event["EventId"].startswith("instance-event-0123abcd")
    assert (event["Code"], event["State"]) == ("system-reboot", "active")
    assert event["NotBefore"] == "18 Sep 2017 08:22:00 GMT"
    assert event["NotAfter"] == "18 Sep 2017 10:22:00 GMT"
    assert event["NotBeforeDeadline"] == "25 Sep 2017 08:22:00 GMT"


def test_days_are_not_padded() -> None:
    # 2019-01-05 09:00:43
    about = document(notices=(notice("instance-stop", deadline_wall_s=1546678843.0),))
    (event,) = json.loads(read(META + "events/maintenance/scheduled", about).body)
    assert event["NotBefore"] == "5 Jan 2019 09:00:43 GMT"


@pytest.mark.parametrize(("withdrawn", "state"), [(True, "canceled"), (False, "completed")])
def test_a_past_event_is_in_the_history(withdrawn: bool, state: str) -> None:
    past = notice("instance-retirement", closed_s=50.0, withdrawn=withdrawn)
    about = document(notices=(past,))
    assert json.loads(read(META + "events/maintenance/history", about, now_s=49.0).body) == []
    assert read(META + "events/maintenance/scheduled", about, now_s=50.0).body == b"[]"
    (event,) = json.loads(read(META + "events/maintenance/history", about, now_s=50.0).body)
    assert event["State"] == state
    assert event["Description"].startswith(f"[{state.capitalize()}] ")


def test_the_lifecycle_state() -> None:
    path = META + "autoscaling/target-lifecycle-state"
    assert read(path, document()).status == 404
    assert read(path, document(autoscaling=True)).body == b"InService"
    ending = noticed("asg-terminate", autoscaling=True)
    assert read(path, ending).body == b"Terminated"
    assert read(META + "events/recommendations/rebalance", ending).status == 404


def test_a_time_that_has_passed_stays() -> None:
    about = noticed("terminate")
    body = read(META + "spot/instance-action", about, now_s=5000.0).body
    assert body == b'{"action":"terminate","time":"2017-09-18T08:22:00Z"}'


def test_a_notice_is_there_from_its_first_to_its_last_moment() -> None:
    about = document(notices=(notice("terminate", visible_s=10.0, closed_s=20.0),))
    seen = {s: read(META + "spot/instance-action", about, now_s=s).status for s in (9.9, 10, 20)}
    assert seen == {9.9: 404, 10: 200, 20: 404}


def test_the_termination_time_of_an_idle_instance_may_be_no_time() -> None:
    idle = document(idle_termination_time="unknown")
    assert read(META + "spot/termination-time", idle).body == b"unknown"
    assert read(META + "spot/instance-action", idle).status == 404


# --- credentials, identity, user data, tags ---------------------------------------------------


def test_credentials_of_the_role() -> None:
    assert read(META + "iam/security-credentials/", document(role="r")).body == b"r"
    told = json.loads(read(META + "iam/security-credentials/r", document(role="r")).body)
    assert set(told) == {
        *("Code", "LastUpdated", "Type", "AccessKeyId", "SecretAccessKey", "Token", "Expiration")
    }
    assert (told["Code"], told["Type"]) == ("Success", "AWS-HMAC")
    assert told["Expiration"] == "2017-09-18T14:00:00Z"
    assert read(META + "iam/security-credentials/other", document(role="r")).status == 404
    assert read(META + "iam/", document(role="")).status == 404


def test_new_credentials_come_long_before_the_old_expire() -> None:
    path = META + "iam/security-credentials/chaosspot"
    hourly = [json.loads(read(path, document(), now_s=3600.0 * n).body) for n in range(2)]
    assert hourly[0]["AccessKeyId"] != hourly[1]["AccessKeyId"]
    assert hourly[0] == json.loads(read(path, document(), now_s=60.0).body)


def test_the_identity_document() -> None:
    told = json.loads(read("/latest/dynamic/instance-identity/document", document()).body)
    assert set(told) == {
        *("accountId", "architecture", "availabilityZone", "billingProducts", "imageId"),
        *("devpayProductCodes", "instanceId", "instanceType", "kernelId", "pendingTime"),
        *("marketplaceProductCodes", "privateIp", "ramdiskId", "region", "version"),
    }
    assert told["instanceId"] == read(META + "instance-id", document()).body.decode()
    assert (told["availabilityZone"], told["kernelId"]) == ("us-east-1b", None)


def test_user_data_is_bytes_and_absent_by_default() -> None:
    assert read("/latest/user-data", document()).status == 404
    told = read("/latest/user-data", document(user_data="#!/bin/sh"))
    assert told.body == b"#!/bin/sh"
    assert told.headers["Content-Type"] == "application/octet-stream"


def test_tags() -> None:
    about = document(tags={"team": "red", "Name": "n0"})
    assert read(META + "tags/instance/", about).body == b"Name\nteam"
    assert read(META + "tags/instance/team", about).body == b"red"
    assert read(META + "tags/instance/", document()).status == 404


# --- the switches -----------------------------------------------------------------------------


@pytest.mark.parametrize(("hops", "limit", "lost"), [(0, 1, False), (1, 1, True), (1, 2, False)])
def test_a_token_does_not_come_further_than_its_hops(hops: int, limit: int, lost: bool) -> None:
    about = document(hops=hops, hop_limit=limit, tokens_required=False)
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: "60"})
    assert isinstance(aws.respond(request, about, at(0.0)), Wait) == lost
    assert ask(META + "instance-id", about).status == 200
    assert ask("/latest/api/token", about).status == 405


def test_a_bad_token_may_be_overlooked_where_none_is_needed() -> None:
    about = document(tokens_required=False, bad_token_refused=False)
    assert ask(META + "instance-id", about, **{TOKEN: "x"}).status == 200
    required = document(tokens_required=True, bad_token_refused=False)
    assert ask(META + "instance-id", required, **{TOKEN: "x"}).status == 401


def test_the_told_lifetime_may_stay() -> None:
    about = document(ttl_counts_down=False)
    headers = {TOKEN: token_of(about, ttl_s=60)}
    request = Request(method="GET", path=META + "instance-id", headers=headers)
    assert respond(request, about, now_s=59.0).headers[aws._TTL_HEADER] == "60"


def test_a_directory_without_its_slash_may_be_redirected() -> None:
    response = read(META + "placement", document(bare_directory="redirect"))
    assert (response.status, response.headers["Location"]) == (301, META + "placement/")


def test_a_forwarded_put_may_get_another_status() -> None:
    about = document(forwarded_status=401)
    headers = {TTL: "60", "x-forwarded-for": "10.0.0.1"}
    request = Request(method="PUT", path="/latest/api/token", headers=headers)
    assert respond(request, about).status == 401


def test_a_killed_token_is_refused_before_its_time() -> None:
    about = document(token_life_s=5.0)
    headers = {TOKEN: token_of(about, ttl_s=60)}
    request = Request(method="GET", path=META + "instance-id", headers=headers)
    statuses = {s: respond(request, about, now_s=s).status for s in (0.0, 4.9, 5.0)}
    assert statuses == {0.0: 200, 4.9: 200, 5.0: 401}
