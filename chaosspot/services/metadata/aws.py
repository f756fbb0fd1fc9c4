"""AWS instance metadata (IMDSv2) as a pure function: request, document and time to response.

Tokens carry their own expiry under a keyed hash, as long as the real ones. So nothing is stored,
and a token of another instance is as unknown here as a forged one.

Where no public source states the real answer, this is what we chose: 401 for a bad token although
tokens are optional, 403 for a PUT with ``X-Forwarded-For``, 405 for other methods on metadata,
a listing for a directory asked without its slash, and a token's remaining seconds counting down.

Sources: EC2 user guide ("instance metadata", "spot instance termination notices"); public captures
of headers and of the 404 page (awslabs/ec2-spot-labs#23); botocore's and the AWS node termination
handler's clients.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
from datetime import UTC, datetime
from email.utils import formatdate
from http import HTTPStatus
from typing import TypeAlias

from chaosspot.services.metadata.values import Document, Instance, Request, Response

__all__ = ["ACTIONS", "ENDPOINT_VARIABLE", "availability_zone", "instance_id", "region", "respond"]

ACTIONS = ("terminate", "stop", "hibernate")
ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
TOKEN_TTL_MAX_S = 21600

_VERSIONS = (
    *("1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01"),
    *("2008-09-01", "2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25"),
    *("2014-11-05", "2015-10-20", "2016-04-19", "2016-06-30", "2016-09-02", "2018-03-28"),
    *("2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03", "2021-03-23"),
    "latest",
)
_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "x-aws-ec2-metadata-token"
_ALWAYS = {"Server": "EC2ws", "Connection": "close"}
_PAGE = """<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
\t\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>{title}</title>
 </head>
 <body>
  <h1>{title}</h1>
 </body>
</html>
"""

Tree: TypeAlias = "dict[str, str | Tree]"


def region(instance: Instance, *, default: str) -> str:
    """The region that the instance's zone names, else ``default``."""
    named = re.match(r"[a-z]{2}(?:-[a-z]+)+-\d+(?=[a-z-])", instance.zone)
    return named.group() if named else default


def availability_zone(document: Document) -> str:
    zone = document.instance.zone
    return document.region + zone if re.fullmatch(r"[a-z]", zone) else zone


def instance_id(*, run: str, node: str) -> str:
    """The same for the same run and node."""
    return "i-" + hashlib.sha256(json.dumps([run, node]).encode()).hexdigest()[:17]


def respond(request: Request, document: Document, *, now_s: float) -> Response:
    """Answer as the real service would; ``now_s`` is a monotonic clock, for the tokens."""
    if request.path == "/latest/api/token":
        return _token_path(request, document, now_s=now_s)
    if request.method == "PUT" and request.path.endswith("/api/token"):
        return _refusal(HTTPStatus.FORBIDDEN)  # only `latest` hands out tokens
    if request.method not in ("GET", "HEAD"):
        return _not_allowed("GET, HEAD")
    extra = {}
    token = request.headers.get(_TOKEN_HEADER)
    if token is not None:
        left_s = _token_left_s(token, document, now_s=now_s)
        if left_s is None:
            return _refusal(HTTPStatus.UNAUTHORIZED)
        extra = {_TTL_HEADER: str(math.floor(left_s))}
    elif document.tokens_required:
        return _refusal(HTTPStatus.UNAUTHORIZED)
    return _metadata(request, document, extra)


# --- tokens ---------------------------------------------------------------------------------


def _token_path(request: Request, document: Document, *, now_s: float) -> Response:
    if request.method != "PUT":
        return _not_allowed("OPTIONS, PUT")
    if "x-forwarded-for" in request.headers:
        return _refusal(HTTPStatus.FORBIDDEN)
    asked = request.headers.get(_TTL_HEADER.lower(), "")
    if not re.fullmatch(r"[0-9]{1,9}", asked) or not 1 <= int(asked) <= TOKEN_TTL_MAX_S:
        return _refusal(HTTPStatus.BAD_REQUEST)
    expiry = round((now_s + int(asked)) * 1e6).to_bytes(8, "big")
    token = base64.urlsafe_b64encode(expiry + _seal(expiry, document))
    headers = {"Content-Type": "text/plain", "Accept-Ranges": "none", _TTL_HEADER: str(int(asked))}
    return Response(status=200, headers=_ALWAYS | headers, body=token)


def _token_left_s(token: str, document: Document, *, now_s: float) -> float | None:
    """Seconds for which the token is still good; None when it is not ours or has expired."""
    try:
        raw = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
    except ValueError:
        return None
    expiry, seal = raw[:8], raw[8:]
    left_s = int.from_bytes(expiry, "big") / 1e6 - now_s
    return left_s if hmac.compare_digest(seal, _seal(expiry, document)) and left_s > 0 else None


def _seal(expiry: bytes, document: Document) -> bytes:
    about = document.instance_id.encode() + expiry
    return hashlib.blake2b(about, key=document.token_key, digest_size=32).digest()


# --- metadata -------------------------------------------------------------------------------


def _metadata(request: Request, document: Document, extra: dict[str, str]) -> Response:
    path = request.path.removeprefix("/").removesuffix("/")
    names = path.split("/") if path else []
    found: str | Tree = {version: {"meta-data": _tree(document)} for version in _VERSIONS}
    for name in names:
        if isinstance(found, str) or name not in found:
            return _refusal(HTTPStatus.NOT_FOUND)
        found = found[name]
    if isinstance(found, str):
        body = found
    elif len(names) < 2:  # versions and categories are listed without a slash
        body = "\n".join(found)
    else:
        body = "\n".join(n if isinstance(v, str) else f"{n}/" for n, v in sorted(found.items()))
    notice = document.notice if names[2:3] == ["spot"] else None
    changed_s = notice.issued_wall_s if notice else document.started_wall_s
    headers = {
        "Content-Type": "text/plain",
        "Accept-Ranges": "none",
        "Last-Modified": formatdate(changed_s, usegmt=True),
    }
    return Response(
        status=200,
        headers=_ALWAYS | headers | extra,
        body=body.encode(),
        tells_notice=notice is not None and len(names) == 4 and request.method == "GET",
    )


def _tree(document: Document) -> Tree:
    instance = document.instance
    tree: Tree = {
        # Not the spot notice, but often taken for it: `none` whatever happens.
        "instance-action": "none",
        "instance-id": document.instance_id,
        "instance-life-cycle": "spot" if instance.pool == "spot" else "on-demand",
        "instance-type": instance.family,
        "placement": {
            "availability-zone": availability_zone(document),
            "region": document.region,
        },
    }
    if document.notice is not None:
        action = document.notice.action
        time = datetime.fromtimestamp(document.notice.deadline_wall_s, UTC)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ")
        told = {"action": action, "time": stamp}
        spot: Tree = {"instance-action": json.dumps(told, separators=(",", ":"))}
        if action == "terminate":
            spot["termination-time"] = stamp
        tree["spot"] = spot
    return tree


# --- refusals -------------------------------------------------------------------------------


def _refusal(status: HTTPStatus) -> Response:
    page = _PAGE.format(title=f"{status.value} - {status.phrase}")
    headers = _ALWAYS | {"Content-Type": "text/html"}
    return Response(status=status.value, headers=headers, body=page.encode())


def _not_allowed(methods: str) -> Response:
    headers = _ALWAYS | {"Content-Type": "text/plain", "Allow": methods}
    return Response(status=405, headers=headers)
