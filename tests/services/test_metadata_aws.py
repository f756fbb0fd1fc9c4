"""The AWS core alone: no socket, no clock."""

from __future__ import annotations

import json

import msgspec
import pytest

from chaosspot.services.metadata import aws
from chaosspot.services.metadata.values import Document, Instance, Notice, Request, Response

TTL = "x-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "x-aws-ec2-metadata-token"
DEADLINE_S = 1505722920.0  # 2017-09-18T08:22:00Z
META = "/latest/meta-data/"


def document(*, zone: str = "b", pool: str = "spot", key: bytes = b"k", **more: object) -> Document:
    instance = Instance(node="node-0", zone=zone, family="p4d.24xlarge", pool=pool)
    plain = Document(
        instance=instance,
        instance_id=aws.instance_id(run="run", node="node-0"),
        region=aws.region(instance, default="us-east-1"),
        started_wall_s=0.0,
        tokens_required=True,
        token_key=key,
    )
    return msgspec.structs.replace(plain, **more)


def noticed(action: str) -> Document:
    issued_s = DEADLINE_S - 120
    notice = Notice(action=action, issued_wall_s=issued_s, deadline_wall_s=DEADLINE_S)
    return document(notice=notice)


def ask(
    path: str, about: Document, *, method: str = "GET", now_s: float = 0.0, **headers: str
) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return aws.respond(Request(method=method, path=path, headers=named), about, now_s=now_s)


def token_of(about: Document, *, ttl_s: int = 60, now_s: float = 0.0) -> str:
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: str(ttl_s)})
    return aws.respond(request, about, now_s=now_s).body.decode()


def read(path: str, about: Document, *, now_s: float = 0.0) -> Response:
    headers = {TOKEN: token_of(about, now_s=now_s)}
    return aws.respond(Request(method="GET", path=path, headers=headers), about, now_s=now_s)


def test_a_token_looks_like_a_real_one() -> None:
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: "21600"})
    response = aws.respond(request, document(), now_s=5.0)
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
    response = aws.respond(request, document(), now_s=0.0)
    assert response.status == 400
    assert b"<title>400 - Bad Request</title>" in response.body


@pytest.mark.parametrize("ttl", ["1", "21600"])
def test_the_lifetimes_at_the_edges_are_granted(ttl: str) -> None:
    request = Request(method="PUT", path="/latest/api/token", headers={TTL: ttl})
    assert aws.respond(request, document(), now_s=0.0).status == 200


def test_a_forwarded_put_is_refused_and_so_is_a_version_path() -> None:
    headers = {TTL: "60", "x-forwarded-for": "10.0.0.1"}
    forwarded = Request(method="PUT", path="/latest/api/token", headers=headers)
    assert aws.respond(forwarded, document(), now_s=0.0).status == 403
    dated = Request(method="PUT", path="/2021-03-23/api/token", headers={TTL: "60"})
    assert aws.respond(dated, document(), now_s=0.0).status == 403


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
    first = aws.instance_id(run="a", node="n")
    assert first == aws.instance_id(run="a", node="n") == "i-" + first[2:]
    assert len(first) == 19
    others = {aws.instance_id(run="a", node="m"), aws.instance_id(run="an", node="")}
    assert first not in others


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
    names = "instance-action\ninstance-id\ninstance-life-cycle\ninstance-type\nplacement/"
    for slash in ("", "/"):
        assert read(f"/latest/meta-data{slash}", about).body.decode() == names
        placement = read(f"/latest/meta-data/placement{slash}", about)
        assert placement.body == b"availability-zone\nregion"
        assert read(f"/latest{slash}", about).body == b"meta-data"
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
    at = read(META + "spot/termination-time", about)
    assert (at.body, at.tells_notice) == (b"2017-09-18T08:22:00Z", True)
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
