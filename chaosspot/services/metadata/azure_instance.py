"""What Azure tells of one instance: the document under ``/metadata/instance``.

All values are strings, and what is absent is an empty one. Source: Azure's documentation of the
instance metadata service; a scale set's instance is called ``set_7`` there, and its host
``set000007`` (azure-docs#62522).
"""

from __future__ import annotations

import re
from typing import Any

from chaosspot.services.metadata.values import Document, Instance

__all__ = ["instance_document", "region", "scale_set", "vm_name"]

_SUBSCRIPTION = "8d10da13-8125-4ba9-a717-bf7490507b3d"


def region(instance: Instance, *, default: str) -> str:
    """The region that the instance's zone names, else ``default``."""
    named = re.fullmatch(r"([a-z]+\d?)-[1-9]", instance.zone)
    return named[1] if named else default


def scale_set(instance: Instance) -> str:
    words = instance.group or f"vmss-{instance.family}-{instance.zone}"
    return re.sub(r"[^A-Za-z0-9-]+", "-", words)


def vm_name(document: Document) -> str:
    return f"{scale_set(document.instance)}_{document.number}"


def instance_document(document: Document) -> dict[str, Any]:
    instance = document.instance
    name, scale = vm_name(document), scale_set(instance)
    spot = instance.pool == "spot"
    group = f"/subscriptions/{_SUBSCRIPTION}/resourceGroups/chaosspot/providers"
    tags = [{"name": key, "value": value} for key, value in instance.tags.items()]
    return {
        "compute": {
            "azEnvironment": "AzurePublicCloud",
            "evictionPolicy": "Delete" if spot else "",
            "location": document.region,
            "name": name,
            "osProfile": {
                "adminUsername": "azureuser",
                "computerName": f"{scale}{_base36(document.number):0>6}",
            },
            "osType": "Linux",
            "placementGroupId": document.guid("placement"),
            "platformFaultDomain": "0",
            "platformUpdateDomain": "0",
            "priority": "Spot" if spot else "Regular",
            "provider": "Microsoft.Compute",
            "resourceGroupName": "chaosspot",
            "resourceId": f"{group}/Microsoft.Compute/virtualMachineScaleSets/{scale}"
            f"/virtualMachines/{document.number}",
            "subscriptionId": _SUBSCRIPTION,
            "tags": ";".join(f"{key}:{value}" for key, value in instance.tags.items()),
            "tagsList": tags,
            "vmId": document.guid("vm"),
            "vmScaleSetName": scale,
            "vmSize": instance.family,
            "zone": _zone(instance.zone),
        },
        "network": {
            "interface": [
                {
                    "ipv4": {
                        "ipAddress": [
                            {"privateIpAddress": document.address, "publicIpAddress": ""}
                        ],
                        "subnet": [{"address": "10.0.0.0", "prefix": "8"}],
                    },
                    "ipv6": {"ipAddress": []},
                    "macAddress": document.mac.replace(":", "").upper(),
                }
            ]
        },
    }


def _zone(zone: str) -> str:
    """A zone's number: short letters count from a."""
    last = zone[-1]
    return str(ord(last) - ord("a") + 1) if re.fullmatch(r"[a-z]", zone) else last


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return digits
