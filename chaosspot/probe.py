"""What a trainer may call: report an event, and mark a point where the harness may stop it.

Standard library only. Without the harness's environment both calls return at once.

=======================  =======================================================================
``CHAOSSPOT_EVENTS``     directory; every process appends JSON lines to a file of its own there
``CHAOSSPOT_POINTS``     directory; a file named like a point arms it
``CHAOSSPOT_TELL``       if set, points that are not armed are reported, as ``passed``
``CHAOSSPOT_CONTROL``    unix socket of the conductor; an armed point waits for its answer there
``CHAOSSPOT_NODE``       node name; ``CHAOSSPOT_RANK`` and ``CHAOSSPOT_INCARNATION`` are integers
=======================  =======================================================================
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

__all__ = ["boot_id", "emit", "point"]

_file: tuple[int, int] | None = None  # (pid that opened it, descriptor)
_header: dict[str, Any] = {}


def emit(event: str, /, **fields: Any) -> None:
    """Append one event to this process's events file.

    The line is written by a single ``write``: a process killed in the middle of it leaves at most
    one torn last line. Fields must be JSON values.

    Raises:
        TypeError: a field is not a JSON value.
        OSError: the events directory cannot be written.
    """
    directory = os.environ.get("CHAOSSPOT_EVENTS")
    if not directory:
        return
    line = {"t": time.monotonic(), "wall": time.time(), **_identity(), "event": event, **fields}
    os.write(_descriptor(directory), (json.dumps(line, separators=(",", ":")) + "\n").encode())


def point(name: str, /) -> None:
    """Mark a place where the harness may hold this process while it injects a fault.

    Costs one ``access`` call under the harness and nothing without it. While the point is armed
    the call blocks until the conductor has acted, or until the conductor is gone.
    """
    directory = os.environ.get("CHAOSSPOT_POINTS")
    if not directory:
        return
    if not os.access(os.path.join(directory, name), os.F_OK):
        if os.environ.get("CHAOSSPOT_TELL"):
            emit("passed", name=name)
        return
    emit("point", name=name)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(os.environ["CHAOSSPOT_CONTROL"])
            request = {"point": name, **_identity()}
            control.sendall((json.dumps(request) + "\n").encode())
            control.recv(1)  # one byte, or end of file when the conductor is gone
    except OSError:
        return  # no conductor left to wait for


def _identity() -> dict[str, Any]:
    """Who is speaking; cached per process because a fork keeps the parent's memory."""
    if _header.get("pid") != os.getpid():
        _header.clear()
        _header.update(
            boot=boot_id(),
            node=os.environ.get("CHAOSSPOT_NODE", ""),
            rank=int(os.environ.get("CHAOSSPOT_RANK", "0")),
            incarnation=int(os.environ.get("CHAOSSPOT_INCARNATION", "0")),
            pid=os.getpid(),
        )
    return _header


def _descriptor(directory: str) -> int:
    global _file
    if _file is None or _file[0] != os.getpid():
        who = _identity()
        name = f"{who['node'] or 'node'}.{who['incarnation']}.{who['rank']}.{who['pid']}.jsonl"
        path = os.path.join(directory, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        _file = (os.getpid(), os.open(path, flags, 0o644))
    return _file[1]


def boot_id() -> str:
    """Identifies this boot of this machine; monotonic clocks compare only within one."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
