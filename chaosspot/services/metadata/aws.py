"""AWS instance metadata (IMDSv1 and v2) as a pure function: request, document and time to response.

Tokens carry their own birth and expiry under a keyed hash, as long as the real ones. So nothing is
stored, and a token of another instance is as unknown here as a forged one.

Where no public source states the real answer, ``AwsSettings`` switches what we chose; 405 for
other methods on metadata is fixed.

Sources: EC2 user guide ("instance metadata", "use IMDSv2"); public captures of headers and of the
404 page (awslabs/ec2-spot-labs#23); botocore's and the AWS node termination handler's clients.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import re
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus

from chaosspot.services.metadata.aws_tree import (
    INTERRUPTIONS,
    MAINTENANCE,
    AwsSettings,
    Tree,
    categories,
    instance_id,
    region,
)
from chaosspot.services.metadata.values import (
    Document,
    Instance,
    Moment,
    Notice,
    Request,
    Response,
    Wait,
)

__all__ = [
    "ACTIONS",
    "DEFAULT_REGION",
    "SPARING",
    "Settings",
    "announced",
    "audience",
    "environment",
    "refusal",
    "region",
    "resource",
    "respond",
    "seen",
]

ACTIONS: Mapping[str, str] = {
    **dict.fromkeys(INTERRUPTIONS, "interruption"),
    "rebalance": "rebalance",
    "asg-terminate": "lifecycle",
    **{code: code for code in MAINTENANCE},
}
SPARING = "rebalance"
DEFAULT_REGION = "us-east-1"
Settings = AwsSettings
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
# Where a notice is told, by its slot; maintenance has a slot for each code.
_TOLD = {"interruption": "spot", "rebalance": "recommendations", "lifecycle": "autoscaling"}


def audience(instance: Instance) -> str:
    return instance.node


def resource(document: Document) -> str:
    return instance_id(document)


def environment(endpoint: str) -> dict[str, str]:
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}


def announced(notice: Notice, document: Document) -> Notice:
    return notice


def seen(request: Request, document: Document, moment: Moment) -> Document:
    return document


def respond(request: Request, document: Document, moment: Moment) -> Response | Wait:
    """Answer as the real service would, or wait for ever for what gets lost on its way."""
    settings = document.settings
    assert isinstance(settings, AwsSettings)
    if request.path == "/latest/api/token":
        answer = _token_path(request, document, settings, moment)
        lost = request.method == "PUT" and settings.hops >= settings.hop_limit
        return Wait() if lost else answer
    if request.method == "PUT" and request.path.endswith("/api/token"):
        return _refusal(HTTPStatus.FORBIDDEN)  # only `latest` hands out tokens
    if request.method not in ("GET", "HEAD"):
        return _not_allowed("GET, HEAD")
    extra = {}
    token = request.headers.get(_TOKEN_HEADER)
    if token is not None and (settings.tokens_required or settings.bad_token_refused):
        left_s = _token_left_s(token, document, settings, now_s=moment.now_s)
        if left_s is None:
            return _refusal(HTTPStatus.UNAUTHORIZED)
        extra = {_TTL_HEADER: str(math.floor(left_s))}
    elif settings.tokens_required:
        return _refusal(HTTPStatus.UNAUTHORIZED)
    return _metadata(request, document, settings, moment, extra)


# --- tokens ---------------------------------------------------------------------------------


def _token_path(
    request: Request, document: Document, settings: AwsSettings, moment: Moment
) -> Response:
    if request.method != "PUT":
        return _not_allowed("OPTIONS, PUT")
    if "x-forwarded-for" in request.headers:
        return _refusal(HTTPStatus(settings.forwarded_status))
    asked = request.headers.get(_TTL_HEADER.lower(), "")
    if not re.fullmatch(r"[0-9]{1,9}", asked) or not 1 <= int(asked) <= TOKEN_TTL_MAX_S:
        return _refusal(HTTPStatus.BAD_REQUEST)
    life = b"".join(
        round(at_s * 1e6).to_bytes(8, "big") for at_s in (moment.now_s, moment.now_s + int(asked))
    )
    token = base64.urlsafe_b64encode(life + _seal(life, document))
    headers = {"Content-Type": "text/plain", "Accept-Ranges": "none", _TTL_HEADER: str(int(asked))}
    return Response(status=200, headers=_ALWAYS | headers, body=token)


def _token_left_s(
    token: str, document: Document, settings: AwsSettings, *, now_s: float
) -> float | None:
    """Seconds to tell for a good token; None when it is not ours, has expired or was killed."""
    try:
        raw = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
    except ValueError:
        return None
    life, seal = raw[:16], raw[16:]
    if not hmac.compare_digest(seal, _seal(life, document)):
        return None
    born_s, dies_s = (int.from_bytes(life[at : at + 8], "big") / 1e6 for at in (0, 8))
    if now_s >= min(dies_s, born_s + document.token_life_s):
        return None
    return dies_s - (now_s if settings.ttl_counts_down else born_s)


def _seal(life: bytes, document: Document) -> bytes:
    about = instance_id(document).encode() + life
    return hashlib.blake2b(about, key=document.token_key, digest_size=24).digest()


# --- metadata -------------------------------------------------------------------------------


def _metadata(
    request: Request,
    document: Document,
    settings: AwsSettings,
    moment: Moment,
    extra: dict[str, str],
) -> Response:
    path = request.path.removeprefix("/").removesuffix("/")
    names = path.split("/") if path else []
    found: str | Tree = dict.fromkeys(_VERSIONS, "")
    if names:
        if names[0] not in _VERSIONS:
            return _refusal(HTTPStatus.NOT_FOUND)
        found = categories(document, settings, moment)
    for name in names[1:]:
        if isinstance(found, str) or name not in found:
            return _refusal(HTTPStatus.NOT_FOUND)
        found = found[name]
    if isinstance(found, str):
        body = found
    elif len(names) < 2:  # versions and categories are listed without a slash
        body = "\n".join(found)
    elif settings.bare_directory == "redirect" and not request.path.endswith("/"):
        headers = {"Content-Type": "text/plain", "Location": request.path + "/"}
        return Response(status=301, headers=_ALWAYS | headers)
    else:
        body = "\n".join(n if isinstance(v, str) else f"{n}/" for n, v in sorted(found.items()))
    told = [
        notice
        for notice in document.shown(moment.now_s)
        if _TOLD.get(notice.slot, "scheduled") in names
    ]
    data = names[1:2] == ["user-data"]
    headers = {
        "Content-Type": "application/octet-stream" if data else "text/plain",
        "Accept-Ranges": "none",
        "Last-Modified": formatdate(
            max((n.issued_wall_s for n in told), default=document.started_wall_s), usegmt=True
        ),
    }
    return Response(
        status=200,
        headers=_ALWAYS | headers | extra,
        body=body.encode(),
        tells_notice=bool(told) and isinstance(found, str) and request.method == "GET",
    )


# --- refusals -------------------------------------------------------------------------------


def refusal(status: int) -> Response:
    return _refusal(HTTPStatus(status))


def _refusal(status: HTTPStatus) -> Response:
    page = _PAGE.format(title=f"{status.value} - {status.phrase}")
    headers = _ALWAYS | {"Content-Type": "text/html"}
    return Response(status=status.value, headers=headers, body=page.encode())


def _not_allowed(methods: str) -> Response:
    headers = _ALWAYS | {"Content-Type": "text/plain", "Allow": methods}
    return Response(status=405, headers=headers)
