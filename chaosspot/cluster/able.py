"""Whether this machine can keep nodes in containers, and what it lacks."""

from __future__ import annotations

import shutil

from chaosspot.cluster.cgroup import Cgroup
from chaosspot.cluster.daemon import Daemon, DaemonError
from chaosspot.cluster.image import of_machine
from chaosspot.cluster.namespaces import may_enter
from chaosspot.schedule import (
    DnsGone,
    Network,
    OutOfMemory,
    Partition,
    Schedule,
    SlowFlash,
    ThrottleCpu,
)

__all__ = ["daemon_version", "unsupported"]

_RULES = "iptables-restore"


def daemon_version() -> str:
    """What the daemon is, if nodes can be kept in its containers.

    Raises:
        OSError: they cannot; says why.
    """
    if not may_enter():
        raise OSError(
            "containers need the right to enter their networks (CAP_SYS_ADMIN): run as root"
        )
    daemon = Daemon()
    try:
        return f"docker {daemon.version()} at {daemon.path}"
    finally:
        daemon.close()


def unsupported(schedule: Schedule, image: str | None) -> str | None:
    """What this machine cannot make of a schedule in containers, and why; None if nothing."""
    try:
        daemon_version()
        daemon = Daemon()
        try:
            if image is not None:
                daemon.image(image)
            else:
                of_machine(daemon, ())
        finally:
            daemon.close()
    except DaemonError as error:
        return str(error)
    except OSError as error:
        return str(error)
    for index, fault in enumerate(schedule.fault):
        if isinstance(fault, SlowFlash):
            return (
                f"fault[{index}]: slow-flash moves a node's processes to a control group of ours, "
                "and those of a container have their own: cluster = 'processes'"
            )
        if isinstance(fault, Partition | DnsGone) and shutil.which(_RULES) is None:
            return f"fault[{index}]: {fault.kind} needs {_RULES}, which is not on PATH"
        if isinstance(fault, OutOfMemory | ThrottleCpu):
            controller = "memory" if isinstance(fault, OutOfMemory) else "cpu"
            try:
                Cgroup(1).folder(controller)
            except OSError as error:
                return f"fault[{index}]: {fault.kind}: {error}"
    proxied = any(isinstance(f, Network) and f.link == "coordinator" for f in schedule.fault)
    if proxied and any(isinstance(fault, Partition) for fault in schedule.fault):
        return (
            "a partition beside an impaired link to the coordinator: what goes through a proxy "
            "cannot be cut off"
        )
    return None
