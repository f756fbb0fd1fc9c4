"""What AWS tells of one instance: the tree under ``/latest``.

Sources: EC2 user guide ("instance metadata categories", "spot instance interruptions", "scheduled
events"); the AWS node termination handler (an empty list of events is an answer, not a 404).
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from chaosspot.services.metadata.values import Document, Instance, Moment, Notice, Settings

__all__ = ["INTERRUPTIONS", "MAINTENANCE", "AwsSettings", "Tree", "categories", "instance_id"]

INTERRUPTIONS = ("terminate", "stop", "hibernate")
MAINTENANCE = (
    *("instance-stop", "instance-retirement", "instance-reboot"),
    *("system-reboot", "system-maintenance"),
)
_ACCOUNT = "123456789012"

Tree: TypeAlias = "dict[str, str | Tree]"


class AwsSettings(Settings, frozen=True, kw_only=True):
    """How the AWS service is set up.

    The answer leaves the host with ``hop_limit`` hops to live: a client ``hops`` routers away (1
    in a container) gets its token only when that is more. The rest is not documented: whether a
    bad token is refused where none is needed, what a forwarded PUT gets, whether a token's told
    lifetime counts down, what a directory without its slash gets, whether an idle instance has a
    list of events, and what ``termination-time`` says before there is one (None: 404).
    """

    tokens_required: bool = True
    hop_limit: int = 1
    hops: int = 0
    role: str = "chaosspot"
    autoscaling: bool = False
    user_data: str = ""
    bad_token_refused: bool = True
    forwarded_status: Literal[400, 401, 403] = 403
    ttl_counts_down: bool = True
    bare_directory: Literal["list", "redirect"] = "list"
    idle_maintenance: Literal["empty", "absent"] = "empty"
    idle_termination_time: str | None = None


def categories(document: Document, settings: AwsSettings, moment: Moment) -> Tree:
    """Everything under a version."""
    identity = json.dumps(_identity(document), indent=2)
    tree: Tree = {
        "dynamic": {"instance-identity": {"document": identity}},
        "meta-data": _metadata(document, settings, moment),
    }
    if settings.user_data:
        tree["user-data"] = settings.user_data
    return tree


def instance_id(document: Document) -> str:
    """The same for the same run and node."""
    return "i-" + document.digest("instance").hex()[:17]


def availability_zone(document: Document) -> str:
    zone = document.instance.zone
    return document.region + zone if re.fullmatch(r"[a-z]", zone) else zone


def _metadata(document: Document, settings: AwsSettings, moment: Moment) -> Tree:
    instance, shown = document.instance, document.shown(moment.now_s)
    name = f"ip-{document.address.replace('.', '-')}.{document.region}.compute.internal"
    tree: Tree = {
        "ami-id": "ami-" + document.digest("image").hex()[:17],
        "ami-launch-index": str(document.number),
        "events": _events(document, settings, moment),
        "hostname": name,
        # Not the spot notice, but often taken for it: `none` whatever happens.
        "instance-action": "none",
        "instance-id": instance_id(document),
        "instance-life-cycle": "spot" if instance.pool == "spot" else "on-demand",
        "instance-type": instance.family,
        "local-hostname": name,
        "local-ipv4": document.address,
        "mac": document.mac,
        "placement": {
            "availability-zone": availability_zone(document),
            "region": document.region,
        },
        "reservation-id": "r-" + document.digest("reservation").hex()[:17],
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if settings.role:
        tree["iam"] = _iam(document, settings.role, moment)
    if instance.tags:
        tree["tags"] = {"instance": dict(instance.tags)}
    ending = any(notice.slot == "lifecycle" for notice in shown)
    if settings.autoscaling or ending:
        state = "Terminated" if ending else "InService"
        tree["autoscaling"] = {"target-lifecycle-state": state}
    if spot := _spot(settings, shown, moment):
        tree["spot"] = spot
    return tree


def _spot(settings: AwsSettings, shown: tuple[Notice, ...], moment: Moment) -> Tree:
    notice = next((n for n in shown if n.slot == "interruption"), None)
    if notice is None:
        told = settings.idle_termination_time
        return {} if told is None else {"termination-time": told}
    stamp = _stamp(notice.deadline_wall_s + notice.repeats(moment.now_s))
    action = {"action": notice.action, "time": stamp}
    spot: Tree = {"instance-action": json.dumps(action, separators=(",", ":"))}
    if notice.action == "terminate":
        spot["termination-time"] = stamp
    return spot


def _events(document: Document, settings: AwsSettings, moment: Moment) -> Tree:
    own = [n for n in document.notices if document.instance.node in n.nodes]
    planned = [n for n in own if n.action in MAINTENANCE]
    active = [_event(n, "active") for n in planned if n.shown(moment.now_s)]
    past = [
        _event(n, "canceled" if n.withdrawn else "completed")
        for n in planned
        if n.closed_s <= moment.now_s
    ]
    tree: Tree = {"maintenance": {"history": json.dumps(past), "scheduled": json.dumps(active)}}
    if settings.idle_maintenance == "absent" and not planned:
        tree = {}
    advice = next((n for n in own if n.slot == "rebalance" and n.shown(moment.now_s)), None)
    if advice is not None:
        told = {"noticeTime": _stamp(advice.issued_wall_s + advice.repeats(moment.now_s))}
        tree["recommendations"] = {"rebalance": json.dumps(told, separators=(",", ":"))}
    return tree


def _event(notice: Notice, state: str) -> dict[str, str]:
    starts = datetime.fromtimestamp(notice.deadline_wall_s, UTC)
    prefix = "" if state == "active" else f"[{state.capitalize()}] "
    return {
        "NotBefore": _day(starts),
        "Code": notice.action,
        "Description": f"{prefix}scheduled {notice.action.removeprefix('system-')}",
        "EventId": "instance-event-" + notice.id.replace("-", "")[:17],
        "NotAfter": _day(starts + timedelta(hours=2)),
        "State": state,
        "NotBeforeDeadline": _day(starts + timedelta(days=7)),
    }


def _iam(document: Document, role: str, moment: Moment) -> Tree:
    # Renewed every hour and good for six: a reader never holds one with under five minutes left.
    hour = int(moment.wall_s // 3600)
    secret = base64.b64encode(document.digest(f"secret {hour}")[:30]).decode()
    credentials = {
        "Code": "Success",
        "LastUpdated": _stamp(hour * 3600),
        "Type": "AWS-HMAC",
        "AccessKeyId": "ASIA" + base64.b32encode(document.digest(f"key {hour}")[:10]).decode(),
        "SecretAccessKey": secret,
        "Token": base64.b64encode(document.digest(f"session {hour}") * 4).decode(),
        "Expiration": _stamp((hour + 6) * 3600),
    }
    info = {
        "Code": "Success",
        "LastUpdated": _stamp(hour * 3600),
        "InstanceProfileArn": f"arn:aws:iam::{_ACCOUNT}:instance-profile/{role}",
        "InstanceProfileId": "AIPA" + base64.b32encode(document.digest("profile")[:10]).decode(),
    }
    return {
        "info": json.dumps(info, indent=2),
        "security-credentials": {role: json.dumps(credentials, indent=2)},
    }


def _identity(document: Document) -> dict[str, object]:
    return {
        "accountId": _ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": availability_zone(document),
        "billingProducts": None,
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": "ami-" + document.digest("image").hex()[:17],
        "instanceId": instance_id(document),
        "instanceType": document.instance.family,
        "kernelId": None,
        "pendingTime": _stamp(document.started_wall_s),
        "privateIp": document.address,
        "ramdiskId": None,
        "region": document.region,
        "version": "2017-09-30",
    }


def region(instance: Instance, *, default: str) -> str:
    """The region that the instance's zone names, else ``default``."""
    named = re.match(r"[a-z]{2}(?:-[a-z]+)+-\d+(?=[a-z-])", instance.zone)
    return named.group() if named else default


def _stamp(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _day(at: datetime) -> str:
    return f"{at.day} {at:%b %Y %H:%M:%S} GMT"
