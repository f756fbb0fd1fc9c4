"""What the daemon is asked for when a node's container is made: no right more than is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaosspot.cluster.image import Inside
from chaosspot.schedule import Node

__all__ = ["Room", "settings"]

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_ROOT = Path(__file__).parents[2]
_PERIOD_US = 100_000
_PIDS = 4096  # unless a group says otherwise: enough for any trainer, too few for a fork bomb
_SHARED_MEMORY_BYTES = 1 << 28
_METADATA = "169.254.169.254"
_METADATA_NAME = "metadata.google.internal"


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What all containers of a cluster have in common.

    ``writes`` and ``reads`` are files and folders that are seen inside, beside those of ``inside``.
    ``folder`` is for sockets: its path is short.
    """

    labels: Mapping[str, str]
    inside: Inside
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    folder: Path


def settings(
    node: Node,
    room: Room,
    *,
    name: str,
    alias: str,
    networks: Sequence[str],
    marks: Mapping[str, str],
    folder: Path,
    log: Path,
    flash: Path,
) -> dict[str, Any]:
    """The arguments of :meth:`Daemon.create`.

    Args:
        networks: by name; the second may be missing.
        marks: variables by which all that runs in it is found.
        folder: where the supervisor's ``channel`` is.
    """
    writes = {str(log), str(folder), str(flash), *room.writes}
    binds = [f"{path}:{path}:ro" for path in (*room.inside.reads, *room.reads)]
    binds += [f"{path}:{path}" for path in sorted(writes)]
    memory: dict[str, Any] = {}
    if node.memory_bytes is not None:
        memory = {"mem_limit": node.memory_bytes, "memswap_limit": node.memory_bytes}
    if node.cpus is not None:
        quota = max(1000, round(node.cpus * _PERIOD_US))
        memory |= {"cpu_period": _PERIOD_US, "cpu_quota": quota}
    argv = [room.inside.python, "-I", "-S", str(_SUPERVISOR), node.name, str(_ROOT)]
    return {
        "first": networks[0],
        "second": networks[1] if len(networks) > 1 else None,
        "alias": alias,
        "image": room.inside.image,
        "entrypoint": [],
        "command": [*argv, str(folder / "channel"), str(log)],
        "name": name,
        "hostname": node.name,
        "labels": {**room.labels, "chaosspot.node": node.name},
        "environment": {**room.inside.environment, **marks},
        "user": "0:0",
        "working_dir": "/",
        "host_config": {
            "binds": binds,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": {"/tmp": "mode=1777"},
            "shm_size": _SHARED_MEMORY_BYTES,
            "dns": [_METADATA],
            "extra_hosts": {_METADATA_NAME: _METADATA},
            # Until ours is open.
            "log_config": {"Type": "json-file", "Config": {"max-size": "64k"}},
            "pids_limit": node.pids or _PIDS,
            **memory,
        },
    }
