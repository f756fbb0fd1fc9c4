"""Azure's scheduled events: the document, and the approval that brings an event forward.

An event is seen by every node of its scale set, is ``Scheduled`` until its time or its approval,
then ``Started``, and then simply not there any more. The incarnation counts changes, so that one
number always goes with one content. Source: Azure's documentation of scheduled events.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec

from chaosspot.services.metadata.values import Document, Moment, Notice, Settings

__all__ = ["API_VERSIONS", "AzureSettings", "approved", "called", "events_document", "ready_s"]

API_VERSIONS = (
    *("2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01"),
    "2020-07-01",
)
_ENABLED_FOR_S = 24 * 3600.0  # without a request the feature is turned off again
# Since when an event type, or a field of an event, is told.
_SINCE = {"preempt": "2017-11-01", "terminate": "2019-01-01"}


class AzureSettings(Settings, frozen=True, kw_only=True):
    """How the Azure service is set up.

    The first request for events turns them on: its answer takes ``first_call_delay_s``, and events
    are told only ``events_after_s`` after it. An approved event starts ``start_after_s`` later.
    ``requests_per_s`` of one node are answered, more get 429 (None: all are). The body of a wrong
    version's 400 is documented for the instance document alone: ``version_error_told`` gives it
    for events too.
    """

    first_call_delay_s: float = 0.0
    events_after_s: float = 0.0
    start_after_s: float = 2.0
    requests_per_s: int | None = 5
    version_error_told: bool = True


def called(document: Document, moment: Moment) -> Document:
    """The document after the node has asked for its events."""
    stale = moment.now_s - document.last_called_s > _ENABLED_FOR_S
    first_s = moment.now_s if document.called_s is None or stale else document.called_s
    return msgspec.structs.replace(document, called_s=first_s, last_called_s=moment.now_s)


def ready_s(document: Document, settings: AzureSettings) -> float:
    """From when on the node gets answers, by the monotonic clock."""
    return (document.called_s or 0.0) + settings.first_call_delay_s


def approved(
    body: bytes, document: Document, settings: AzureSettings, moment: Moment
) -> tuple[Notice, ...] | None:
    """The notices after ``StartRequests``; None when the body is none, or names no such event."""
    try:
        asked = json.loads(body)["StartRequests"]
        wanted = {entry["EventId"].lower() for entry in asked}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    known = {notice.id for notice in _told(document, settings) if notice.shown(moment.now_s)}
    if not wanted or not wanted <= known:
        return None
    soon_s = moment.now_s + settings.start_after_s
    return tuple(
        # never in the very moment in which it was first seen: it has been Scheduled
        msgspec.structs.replace(
            notice, starts_s=max(soon_s, math.nextafter(notice.visible_s, math.inf))
        )
        if notice.id in wanted and soon_s < notice.starts_s
        else notice
        for notice in document.notices
    )


def events_document(
    document: Document, settings: AzureSettings, moment: Moment, version: str
) -> tuple[dict[str, Any], bool]:
    """What is told, and whether it tells of an event for this node."""
    notices = _told(document, settings)
    shown = [
        notice
        for notice in notices
        if notice.shown(moment.now_s) and _SINCE.get(notice.action, "") <= version
    ]
    told = {
        "DocumentIncarnation": 1 + sum(notice.changes(moment.now_s) for notice in notices),
        "Events": [_event(notice, moment, version) for notice in shown],
    }
    return told, any(document.instance.node in notice.nodes for notice in shown)


def _told(document: Document, settings: AzureSettings) -> tuple[Notice, ...]:
    if not settings.events_after_s or document.called_s is None:
        return document.notices
    from_s = document.called_s + settings.events_after_s
    return tuple(
        msgspec.structs.replace(notice, visible_s=max(notice.visible_s, from_s))
        for notice in document.notices
    )


def _event(notice: Notice, moment: Moment, version: str) -> dict[str, Any]:
    started = moment.now_s >= notice.starts_s
    lasts_s = notice.closed_s - notice.starts_s
    at = datetime.fromtimestamp(notice.deadline_wall_s, UTC)
    mark = "_" if version == "2017-03-01" else ""
    event: dict[str, Any] = {
        "EventId": notice.id,
        "EventStatus": "Started" if started else "Scheduled",
        "EventType": notice.action.capitalize(),
        "ResourceType": "VirtualMachine",
        "Resources": [mark + name for name in notice.resources],
        "NotBefore": "" if started else format_datetime(at, usegmt=True),
    }
    if version >= "2019-04-01":
        event["Description"] = ""
    if version >= "2019-08-01":
        event["EventSource"] = "Platform"
    if version >= "2020-07-01":
        known = notice.action not in ("preempt", "terminate") and lasts_s != math.inf
        event["DurationInSeconds"] = round(lasts_s) if known else -1
    return event
