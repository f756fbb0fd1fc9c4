"""Azure's instance metadata service as a pure function: request, document and time to response.

Where no public source states the real answer, ``AzureSettings`` switches what we chose; 400 for a
forwarded request and an empty body with 405 are fixed.

Sources: Azure's documentation of the instance metadata service, of scheduled events and of managed
identities; azure-identity's client.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from chaosspot.services.metadata.azure_events import (
    API_VERSIONS,
    AzureSettings,
    approved,
    called,
    events_document,
    ready_s,
)
from chaosspot.services.metadata.azure_instance import (
    instance_document,
    region,
    scale_set,
    vm_name,
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
    action: action for action in ("preempt", "terminate", "reboot", "redeploy", "freeze")
}
SPARING = "freeze"
DEFAULT_REGION = "eastus"
Settings = AzureSettings

_EVENTS = "/metadata/scheduledevents"
_IDENTITY = "/metadata/identity/oauth2/token"
_INSTANCE_VERSIONS = (
    *("2017-04-02", "2017-08-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01"),
    *("2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01"),
    *("2019-08-15", "2019-11-01", "2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01"),
    *("2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-08-01"),
    *("2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01", "2023-11-15"),
    "2025-04-07",
)
_IDENTITY_VERSIONS = ("2018-02-01", *_INSTANCE_VERSIONS[4:])
_TOKEN_LIFE_S = 86400


def audience(instance: Instance) -> str:
    return scale_set(instance)


def resource(document: Document) -> str:
    return vm_name(document)


def environment(endpoint: str) -> dict[str, str]:
    # No client of scheduled events reads a variable: the second name is ours.
    return {
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": endpoint,
        "AZURE_METADATA_SERVICE_ENDPOINT": endpoint,
    }


def announced(notice: Notice, document: Document) -> Notice:
    return notice


def seen(request: Request, document: Document, moment: Moment) -> Document:
    if request.path.rstrip("/") != _EVENTS or _refused(request, API_VERSIONS) is not None:
        return document
    settings = document.settings
    assert isinstance(settings, AzureSettings)
    document = called(document, moment)
    if request.method == "POST":
        notices = approved(request.body, document, settings, moment)
        if notices is not None:
            document = msgspec.structs.replace(document, notices=notices)
    return document


def respond(request: Request, document: Document, moment: Moment) -> Response | Wait:
    """Answer as the real service would; the first request for events may have to wait."""
    settings = document.settings
    assert isinstance(settings, AzureSettings)
    path = request.path.rstrip("/")
    if path == _EVENTS:
        return _events(request, document, settings, moment)
    if path == _IDENTITY:
        return _identity(request, document, moment)
    if path == "/metadata/versions":
        refusal = _refused(request, None)
        return refusal or _json(200, {"apiVersions": _INSTANCE_VERSIONS})
    if path == "/metadata/instance" or path.startswith("/metadata/instance/"):
        return _instance(request, path, document)
    return _error(404, "Not found")


# --- scheduled events -----------------------------------------------------------------------


def _events(
    request: Request, document: Document, settings: AzureSettings, moment: Moment
) -> Response | Wait:
    if request.method not in ("GET", "POST"):
        return _not_allowed("GET, POST")
    refusal = _refused(request, API_VERSIONS, told=settings.version_error_told)
    if refusal is not None:
        return refusal
    if moment.now_s < (until_s := ready_s(document, settings)):
        return Wait(until_s=until_s)
    if request.method == "POST":
        # Already carried out: what it asked for is as true of the document that it made.
        good = approved(request.body, document, settings, moment) is not None
        return Response(status=200, headers=_HEADERS) if good else _error(400, "Bad request")
    told, own = events_document(document, settings, moment, _asked(request, "api-version"))
    return _json(200, told, tells_notice=own)


# --- the instance, and its identity -----------------------------------------------------------


def _instance(request: Request, path: str, document: Document) -> Response:
    if request.method != "GET":
        return _not_allowed("GET")
    refusal = _refused(request, _INSTANCE_VERSIONS)
    if refusal is not None:
        return refusal
    found: Any = instance_document(document)
    for name in path.removeprefix("/metadata/instance").split("/")[1:]:
        if isinstance(found, list) and name.isdecimal() and int(name[:9]) < len(found):
            found = found[int(name[:9])]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return _error(404, "Not found")
    form = _asked(request, "format") or "json"
    if form == "json" and not isinstance(found, str):
        return _json(200, found)
    if form != "text":
        why = "must be json or text" if form != "json" else "of a value must be text"
        return _error(400, f"Bad request. The format {why}")
    if isinstance(found, list):
        text = "\n".join(f"{index}/" for index in range(len(found)))
    elif isinstance(found, dict):
        text = "\n".join(n if isinstance(v, str) else f"{n}/" for n, v in found.items())
    else:
        text = found
    headers = _HEADERS | {"Content-Type": "text/plain; charset=utf-8"}
    return Response(status=200, headers=headers, body=text.encode())


def _identity(request: Request, document: Document, moment: Moment) -> Response:
    if request.method != "GET":
        return _not_allowed("GET")
    refusal = _refused(request, _IDENTITY_VERSIONS)
    if refusal is not None:
        return refusal
    resource = _asked(request, "resource")
    if not resource:
        return _json(
            400, {"error": "invalid_request", "error_description": "resource was not specified"}
        )
    born_s = int(moment.wall_s // 3600 * 3600)  # one is handed out for an hour
    secret = base64.urlsafe_b64encode(document.digest(f"token {born_s} {resource}") * 4).decode()
    return _json(
        200,
        {
            "access_token": secret.rstrip("="),
            "client_id": document.guid("identity"),
            "expires_in": str(int(born_s + _TOKEN_LIFE_S - moment.wall_s)),
            "expires_on": str(born_s + _TOKEN_LIFE_S),
            "ext_expires_in": str(_TOKEN_LIFE_S),
            "not_before": str(born_s),
            "resource": resource,
            "token_type": "Bearer",
        },
    )


# --- what all have in common ------------------------------------------------------------------

_HEADERS = {"Server": "IMDS", "Content-Type": "application/json; charset=utf-8"}


def _refused(
    request: Request, versions: tuple[str, ...] | None, *, told: bool = True
) -> Response | None:
    """The answer to a request that may not be served, else None; ``versions`` are those known."""
    names = [name for name, _ in request.query]
    if "x-forwarded-for" in request.headers:
        return _error(400, "Bad request. Forwarded requests are not served")
    version = _asked(request, "api-version")
    preview = versions is API_VERSIONS and version == API_VERSIONS[0]
    if not preview and request.headers.get("metadata", "").lower() != "true":
        return _error(400, "Bad request. Required metadata header not specified")
    if len(names) != len(set(names)):
        return _error(400, "Bad request. Query parameters must be given once")
    if versions is None or version in versions:
        return None
    if not told:
        return _error(400, "Bad request")
    return _json(
        400,
        {
            "error": "Bad request. api-version is invalid or was not specified in the request. "
            "For more information refer to aka.ms/azureimds",
            "newest-versions": versions[:-4:-1],
        },
    )


def _asked(request: Request, name: str) -> str:
    return next((value for key, value in request.query if key == name), "")


def _json(status: int, told: object, *, tells_notice: bool = False) -> Response:
    body = json.dumps(told, separators=(",", ":")).encode()
    return Response(status=status, headers=_HEADERS, body=body, tells_notice=tells_notice)


def _error(status: int, why: str) -> Response:
    return _json(status, {"error": why})


def refusal(status: int) -> Response:
    return _error(status, HTTPStatus(status).phrase)


def _not_allowed(methods: str) -> Response:
    return Response(status=405, headers=_HEADERS | {"Allow": methods})
