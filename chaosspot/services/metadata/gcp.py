"""Google Cloud's metadata server as a pure function: request, document and time to response.

A hanging GET is no state of the server: what a value's ETag was when the request came follows
from the document, so that looking again tells whether it has changed since. ETags are made of the
number of changes until then, so that a value which returns to an old one has a new ETag.

Where no public source states the real answer, ``GcpSettings`` switches what we chose; 405 for
other methods and 400 for a parameter that is not one of its values are fixed.

Sources: Compute Engine ("view and query VM metadata", "troubleshoot the metadata server"); public
captures of headers; google-auth's, the guest agent's and compute-image-packages' clients;
salrashid123/gce_metadata_server for the redirect and the page of a 404.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from chaosspot.services.metadata.gcp_tree import PLACES, GcpSettings, Leaf, Tree, region, tree
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
    "preempt": "interruption",
    "migrate": "maintenance",
    "terminate": "maintenance",
    "upcoming-maintenance": "upcoming",
    "stop": "stop",
}
SPARING = "migrate"
DEFAULT_REGION = "us-central1"
Settings = GcpSettings

_ROOT = "/computeMetadata/v1"
_ALWAYS = {
    "Server": "Metadata Server for VM",
    "X-XSS-Protection": "0",
    "X-Frame-Options": "SAMEORIGIN",
}
_FLAVOR = {"Metadata-Flavor": "Google"}
_TOKEN = re.compile(r"instance/service-accounts/([^/]+)/token")
_TOKEN_LIFE_S = 3600
_PAGE = """<!DOCTYPE html>
<html lang=en>
  <meta charset=utf-8>
  <title>Error {code} ({phrase})!!1</title>
  <p><b>{code}.</b> <ins>That’s an error.</ins>
  <p>{why} <ins>That’s all we know.</ins>
"""


class _Bad(ValueError):
    """A parameter that is not one of its values."""


def audience(instance: Instance) -> str:
    return instance.node


def resource(document: Document) -> str:
    return document.instance.node


def environment(endpoint: str) -> dict[str, str]:
    host = endpoint.removeprefix("http://")
    return dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"), host)


def announced(notice: Notice, document: Document) -> Notice:
    settings = document.settings
    assert isinstance(settings, GcpSettings)
    if notice.slot == "interruption" and settings.preemption == "acpi":
        return msgspec.structs.replace(notice, visible_s=notice.starts_s)
    if notice.slot == "maintenance" and settings.arming:
        before = [n.visible_s for n in document.notices if n.slot == "maintenance"]
        unarmed = document.last_called_s <= max(before, default=float("-inf"))
        return msgspec.structs.replace(notice, unarmed=unarmed)
    return notice


def seen(request: Request, document: Document, moment: Moment) -> Document:
    if request.path.strip("/") != f"{_ROOT}/{PLACES['maintenance']}".strip("/"):
        return document
    return msgspec.structs.replace(document, last_called_s=moment.now_s)


def respond(request: Request, document: Document, moment: Moment) -> Response | Wait:
    """Answer as the real service would; a hanging GET waits for a change of what it asked for."""
    settings = document.settings
    assert isinstance(settings, GcpSettings)
    if request.method not in ("GET", "HEAD"):
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "The request method is not allowed.")
    if request.path == "/":
        return _answer(b"computeMetadata/\n", "application/text")
    if "x-forwarded-for" in request.headers:
        return _refusal(HTTPStatus.FORBIDDEN, "Forwarded requests are not served.")
    flavor = request.headers.get("metadata-flavor")
    if flavor is None and "x-google-metadata-request" not in request.headers:
        return _refusal(HTTPStatus.FORBIDDEN, "Missing Metadata-Flavor:Google header.")
    if flavor is not None and flavor != "Google":
        return _refusal(HTTPStatus(settings.wrong_flavor_status), "Wrong Metadata-Flavor header.")
    if request.path in ("/computeMetadata", "/computeMetadata/"):
        return _answer(b"v1/\n", "application/text")
    if not (request.path + "/").startswith(_ROOT + "/"):
        return _missing(request)
    try:
        return _value(request, document, settings, moment)
    except _Bad as error:
        return _refusal(HTTPStatus.BAD_REQUEST, str(error))


# --- values ---------------------------------------------------------------------------------


def _value(
    request: Request, document: Document, settings: GcpSettings, moment: Moment
) -> Response | Wait:
    path = request.path.removeprefix(_ROOT).strip("/")
    asked = dict(reversed(request.query))  # the first one counts
    recursive = _flag(asked, "recursive")
    waits = _flag(asked, "wait_for_change")
    alt = asked.get("alt")
    if alt not in (None, "json", "text"):
        raise _Bad(f"alt={alt!r}: expected json or text")
    limit_s = asked.get("timeout_sec")
    if limit_s is not None and not re.fullmatch(r"[0-9]{1,9}", limit_s):
        raise _Bad(f"timeout_sec={limit_s!r}: expected whole seconds")
    if token := _TOKEN.fullmatch(path):
        if waits:
            raise _Bad("wait_for_change cannot be used with a token")
        return _token(request, token[1], document, settings, moment)
    found = _find(path, document, settings, moment)
    if found is None:
        return _missing(request)
    listing = isinstance(found, dict) and not recursive
    if isinstance(found, dict) and not request.path.endswith("/"):
        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {"Location": quote(request.path) + "/" + query, "Content-Type": "text/html"}
        return Response(status=301, headers=_ALWAYS | _FLAVOR | headers)
    if waits and listing:
        raise _Bad("wait_for_change needs a value, or recursive=true")
    etag = _etag(path, document, moment.now_s)
    if waits and etag == asked.get("last_etag", _asked_etag(path, request, document)):
        until_s = request.asked_s + (float(limit_s) if limit_s is not None else float("inf"))
        if moment.now_s < until_s:
            return Wait(until_s=min(until_s, document.next_change_s(moment.now_s)))
    as_json = alt == "json" or (alt is None and (recursive or isinstance(found, tuple)))
    if listing and isinstance(found, dict):
        body = "".join(f"{n}/\n" if isinstance(v, dict) else f"{n}\n" for n, v in found.items())
    elif as_json and (isinstance(found, dict | tuple | int) or settings.json_scalars_quoted):
        body = json.dumps(_camel(found), separators=(",", ":"))
    elif isinstance(found, dict):
        body = "".join(f"{name} {_text(leaf)}\n" for name, leaf in _leaves(found))
    else:
        body = _text(found)
    told = [place for n in document.shown(moment.now_s) if _within(place := PLACES[n.slot], path)]
    return _answer(
        body.encode(),
        "application/json" if as_json and not listing else "application/text",
        etag,
        tells_notice=bool(told) and not listing and request.method == "GET",
    )


def _flag(asked: dict[str, str], name: str) -> bool:
    value = asked.get(name, "false").lower()
    if value not in ("true", "false"):
        raise _Bad(f"{name}={asked[name]!r}: expected true or false")
    return value == "true"


def _find(
    path: str, document: Document, settings: GcpSettings, moment: Moment
) -> Leaf | Tree | None:
    found: Leaf | Tree | None = tree(document, settings, moment)
    for name in path.split("/") if path else []:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _etag(path: str, document: Document, at_s: float) -> str:
    """Of the changes under ``path`` until ``at_s``: hexadecimal, not padded."""
    name = document.instance.node
    own = [n for n in document.notices if name in n.nodes and _within(PLACES[n.slot], path)]
    changes = sum(notice.changes(at_s) for notice in own)
    about = json.dumps([path, changes]).encode()
    digest = hashlib.blake2b(about, key=document.token_key, digest_size=8).digest()
    return f"{int.from_bytes(digest):x}"


def _asked_etag(path: str, request: Request, document: Document) -> str:
    """The ETag when the request came."""
    if request.asked_notices is not None:
        document = msgspec.structs.replace(document, notices=request.asked_notices)
    return _etag(path, document, request.asked_s)


def _within(place: str, path: str) -> bool:
    """Whether either lies in the other."""
    return not path or f"{place}/".startswith(f"{path}/") or f"{path}/".startswith(f"{place}/")


def _camel(found: Leaf | Tree, *, names: bool = True) -> Any:
    if not isinstance(found, dict):
        return found
    if found and all(name.isdecimal() for name in found):
        return [_camel(value) for value in found.values()]
    return {
        re.sub(r"-([a-z])", lambda m: m[1].upper(), name) if names else name: _camel(
            # attributes are the owner's, and an account's name is an address
            value,
            names=name not in ("attributes", "service-accounts"),
        )
        for name, value in found.items()
    }


def _leaves(found: Tree, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def _text(leaf: Leaf) -> str:
    return "\n".join(leaf) if isinstance(leaf, tuple) else str(leaf)


def _token(
    request: Request, account: str, document: Document, settings: GcpSettings, moment: Moment
) -> Response:
    if _find(f"instance/service-accounts/{account}", document, settings, moment) is None:
        return _missing(request)
    number, age_s = divmod(moment.wall_s, _TOKEN_LIFE_S)
    secret = base64.urlsafe_b64encode(document.digest(f"token {number:.0f}") * 3).decode()
    told = {
        "access_token": "ya29." + secret.rstrip("="),
        "expires_in": int(_TOKEN_LIFE_S - age_s),
        "token_type": "Bearer",
    }
    return _answer(json.dumps(told, separators=(",", ":")).encode(), "application/json")


# --- answers --------------------------------------------------------------------------------


def _answer(body: bytes, kind: str, etag: str = "", *, tells_notice: bool = False) -> Response:
    headers = _ALWAYS | _FLAVOR | {"Content-Type": kind} | ({"ETag": etag} if etag else {})
    return Response(status=200, headers=headers, body=body, tells_notice=tells_notice)


def refusal(status: int) -> Response:
    return _refusal(HTTPStatus(status), "The request was not served.")


def _missing(request: Request) -> Response:
    return _refusal(HTTPStatus.NOT_FOUND, "The requested URL was not found on this server.")


def _refusal(status: HTTPStatus, why: str) -> Response:
    escaped = why.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    page = _PAGE.format(code=status.value, phrase=status.phrase, why=escaped)
    headers = _ALWAYS | _FLAVOR | {"Content-Type": "text/html; charset=UTF-8"}
    return Response(status=status.value, headers=headers, body=page.encode())
