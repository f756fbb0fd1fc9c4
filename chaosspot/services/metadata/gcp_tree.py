"""What Google Cloud tells of one instance: the tree under ``/computeMetadata/v1``.

Sources: Compute Engine ("view and query VM metadata", "live migration notice", "preemptible VM
instances"); the k8s node termination handler and the guest agent for spellings; public captures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from chaosspot.services.metadata.values import Document, Instance, Moment, Settings

__all__ = ["PLACES", "GcpSettings", "Leaf", "Tree", "region", "tree"]

Leaf: TypeAlias = "str | int | tuple[str, ...]"
Tree: TypeAlias = "dict[str, Leaf | Tree]"

# Which part of the tree a notice changes, by its slot.
PLACES: Mapping[str, str] = {
    "interruption": "instance/preempted",
    "maintenance": "instance/maintenance-event",
    "upcoming": "instance/upcoming-maintenance",
    "stop": "instance/shutdown-details",
}
PROJECT = "chaosspot"
_PROJECT_NUMBER = 123456789012
_MAINTENANCE = {
    "migrate": "MIGRATE_ON_HOST_MAINTENANCE",
    "terminate": "TERMINATE_ON_HOST_MAINTENANCE",
}


class GcpSettings(Settings, frozen=True, kw_only=True):
    """How the Google Cloud service is set up.

    ``preemption``: with ``notice`` (a preemption notice duration) the flag turns when the notice
    is published; with ``acpi``, the cloud's default, only at the deadline, with the shutdown
    signal itself. ``arming``: a maintenance event is shown only if the key was asked for since
    the last one. The rest is not documented: the status for a wrong ``Metadata-Flavor``, whether
    ``alt=json`` puts a scalar into quotes, and what the shutdown details say while none is under
    way (None: 404).
    """

    preemption: Literal["notice", "acpi"] = "notice"
    arming: bool = False
    scopes: tuple[str, ...] = ("https://www.googleapis.com/auth/cloud-platform",)
    wrong_flavor_status: Literal[403, 404] = 404
    json_scalars_quoted: bool = True
    idle_stop_state: str | None = "UNKNOWN"


def region(instance: Instance, *, default: str) -> str:
    """The region that the instance's zone names, else ``default``."""
    named = re.fullmatch(r"([a-z]+-[a-z]+\d+)-[a-z]", instance.zone)
    return named[1] if named else default


def zone(document: Document) -> str:
    short = re.fullmatch(r"[a-z]", document.instance.zone)
    return f"{document.region}-{document.instance.zone}" if short else document.instance.zone


def tree(document: Document, settings: GcpSettings, moment: Moment) -> Tree:
    return {
        "instance": _instance(document, settings, moment),
        "project": {
            "attributes": {},
            "numeric-project-id": _PROJECT_NUMBER,
            "project-id": PROJECT,
        },
    }


def _instance(document: Document, settings: GcpSettings, moment: Moment) -> Tree:
    instance = document.instance
    shown = {notice.slot: notice for notice in document.shown(moment.now_s)}
    spot = instance.pool == "spot"
    maintenance = shown.get("maintenance")
    found: Tree = {
        "attributes": dict(instance.tags),
        "hostname": f"{instance.node}.c.{PROJECT}.internal",
        # 19 digits, as real ones: more than a floating-point number holds
        "id": 10**18 + int.from_bytes(document.digest("instance")[:8]) % (8 * 10**18),
        "machine-type": f"projects/{_PROJECT_NUMBER}/machineTypes/{instance.family}",
        "maintenance-event": _MAINTENANCE[maintenance.action] if maintenance else "NONE",
        "name": instance.node,
        "network-interfaces": {
            "0": {
                "ip": document.address,
                "mac": document.mac,
                "network": f"projects/{_PROJECT_NUMBER}/networks/default",
            }
        },
        "preempted": "TRUE" if "interruption" in shown else "FALSE",
        "scheduling": {
            "automatic-restart": "FALSE" if spot else "TRUE",
            "on-host-maintenance": "TERMINATE" if spot else "MIGRATE",
            "preemptible": "TRUE" if spot else "FALSE",
        },
        "service-accounts": _accounts(settings),
        "tags": (),
        "virtual-clock": {"drift-token": "0"},
        "zone": f"projects/{_PROJECT_NUMBER}/zones/{zone(document)}",
    }
    stop = shown.get("stop")
    if stop is not None or settings.idle_stop_state is not None:
        found["shutdown-details"] = {
            "max-duration": str(round(stop.starts_s - stop.visible_s)) if stop else "",
            "request-timestamp": _stamp(stop.issued_wall_s) if stop else "",
            "stop-state": "PENDING_STOP" if stop else str(settings.idle_stop_state),
            "target-state": "STOPPED" if stop else "",
        }
    if upcoming := shown.get("upcoming"):
        found["upcoming-maintenance"] = {
            "can-reschedule": "TRUE",
            "latest-window-start-time": _stamp(upcoming.deadline_wall_s),
            "maintenance-status": "ONGOING" if moment.now_s >= upcoming.starts_s else "PENDING",
            "type": "SCHEDULED",
            "window-end-time": _stamp(upcoming.deadline_wall_s + 2 * 3600),
            "window-start-time": _stamp(upcoming.deadline_wall_s),
        }
    return found


def _accounts(settings: GcpSettings) -> Tree:
    if not settings.scopes:
        return {}
    email = f"{_PROJECT_NUMBER}-compute@developer.gserviceaccount.com"
    account: Tree = {"aliases": ("default",), "email": email, "scopes": settings.scopes}
    return {email: account, "default": account}


def _stamp(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
