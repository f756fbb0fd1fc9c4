"""What this machine can do, checked by doing it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from chaosspot.undo.state import StateError, ready

__all__ = ["Check", "examine"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One ability; ``needed``: without it no attack on processes can run."""

    what: str
    ok: bool
    found: str
    needed: bool = True


def examine() -> list[Check]:
    """All checks, the needed ones first."""
    return [
        _python(),
        _proc(),
        _loopback(),
        _state(),
        _disk(),
        _package("torch"),
        _package("torchft"),
        _docker(),
    ]


def _python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    return Check(what="python 3.11 or later", ok=sys.version_info >= (3, 11), found=found)


def _proc() -> Check:
    what = "Linux /proc and pidfd, to see and end whole process trees"
    try:
        os.close(os.pidfd_open(os.getpid()))
        Path("/proc/self/environ").read_bytes()
    except (AttributeError, OSError) as error:
        return Check(what=what, ok=False, found=f"{platform.system()}: {error}")
    return Check(what=what, ok=True, found=f"{platform.system()} {platform.release()}")


def _loopback() -> Check:
    what = "loopback addresses of a run's own"
    try:
        with socket.socket() as listener:
            listener.bind(("127.83.1.1", 0))
    except OSError as error:
        return Check(what=what, ok=False, found=f"127.83.1.1: {error.strerror}")
    return Check(what=what, ok=True, found="127.0.0.0/8")


def _state() -> Check:
    what = "state directory, for leases and undo records"
    try:
        home = ready()
    except StateError as error:
        return Check(what=what, ok=False, found=str(error))
    return Check(what=what, ok=True, found=str(home))


def _disk() -> Check:
    free = shutil.disk_usage(".").free
    found = f"{free / 1e9:.1f} GB free in {Path.cwd()}"
    return Check(what="disk for run directories", ok=free > 200e6, found=found)


def _package(name: str) -> Check:
    what = f"{name}, for the reference trainer"
    try:
        return Check(what=what, ok=True, found=metadata.version(name), needed=False)
    except metadata.PackageNotFoundError:
        return Check(what=what, ok=False, found="not installed", needed=False)


def _docker() -> Check:
    from chaosspot.cluster.able import daemon_version

    what = "docker daemon, for cluster = 'containers'"
    try:
        return Check(what=what, ok=True, found=daemon_version(), needed=False)
    except OSError as error:
        return Check(what=what, ok=False, found=str(error), needed=False)
