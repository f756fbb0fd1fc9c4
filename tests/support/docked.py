"""Tests that need a Docker daemon: what they are marked with, and what the daemon has."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from chaosspot.cluster.able import daemon_version
from chaosspot.cluster.daemon import Daemon
from chaosspot.undo import docker


def _lacking() -> str:
    try:
        daemon_version()
    except OSError as error:
        return str(error)
    return ""


LACKING = _lacking()
NEEDS_DAEMON = [
    pytest.mark.containers,
    pytest.mark.skipif(bool(LACKING), reason=LACKING or "a daemon answers"),
]


def left_of(home: object) -> list[str]:
    """What the daemon has of runs whose leases are in that state directory, by its own client."""
    label = f"label={docker.LEASES}={home}/leases"
    found = []
    for kind in (["ps", "-a"], ["network", "ls"], ["volume", "ls"]):
        names = "{{.Name}}" if kind[0] != "ps" else "{{.Names}}"
        found += _client(*kind, "--filter", label, "--format", names).split()
    return found


def foreign(name: str, *label: str) -> str:
    """A container of somebody else; its id. Whoever makes it removes it."""
    daemon = Daemon()
    try:
        from chaosspot.cluster.image import of_machine

        image = of_machine(daemon, ()).image
    finally:
        daemon.close()
    labels = [part for text in label for part in ("--label", text)]
    usr = ["-v", "/usr:/usr:ro", "--network", "none"]
    return _client("run", "-d", "--name", name, *labels, *usr, image, "/usr/bin/sleep", "600")


def running(which: str) -> bool:
    return _client("inspect", "--format", "{{.State.Running}}", which) == "true"


def discard(which: str) -> None:
    _client("rm", "-f", which)


def inspect(which: str) -> dict[str, Any]:
    """What the daemon tells of a container."""
    daemon = Daemon()
    try:
        return daemon.inspect(which) or {}
    finally:
        daemon.close()


def _client(*argv: str) -> str:
    done = subprocess.run(
        ["/usr/bin/docker", *argv], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()
