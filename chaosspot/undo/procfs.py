"""What /proc says about processes. Standard library only: supervisors and the guardian use it.

"Absent" is only what the kernel calls absent. Any other failure to read is an error: a harness
out of file descriptors must not take the living for dead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = [
    "RUN",
    "TREE",
    "Process",
    "boot_id",
    "children",
    "descendants",
    "everyone",
    "holders",
    "me",
    "offspring",
    "read",
    "stopped",
]

RUN = "CHAOSSPOT_RUN"  # environment of every process of a run: the lease's id
TREE = "CHAOSSPOT_TREE"  # the same for one incarnation of one node


class Process(NamedTuple):
    """One process; ``start_ticks`` tells it from a later one with the same pid."""

    pid: int
    parent: int
    start_ticks: int
    alive: bool

    def is_now(self) -> bool:
        """Whether this very process still lives."""
        now = read(self.pid)
        return now is not None and now.alive and now.start_ticks == self.start_ticks


def read(pid: int) -> Process | None:
    """The process with that pid, None if there is none."""
    data = _contents(f"/proc/{pid}/stat")
    if not data:
        return None
    # The name may hold spaces and brackets; what follows the last bracket are plain fields.
    fields = data[data.rindex(b")") + 2 :].split()
    # A main thread that has ended shows as a zombie while its other threads work on.
    alive = fields[0] not in (b"Z", b"X", b"x") or int(fields[17]) > 1
    return Process(pid, int(fields[1]), int(fields[19]), alive)


def stopped(pid: int) -> bool:
    """Whether no thread of the process can run: each is stopped by a signal or has ended."""
    for task in _names(f"/proc/{pid}/task"):
        data = _contents(f"/proc/{pid}/task/{task}/stat")
        if data and data[data.rindex(b")") + 2 :][:1] not in b"TtZXx":
            return False
    return True


def me() -> Process:
    """The calling process."""
    myself = read(os.getpid())
    if myself is None:
        raise OSError("cannot read /proc/self/stat: is /proc mounted?")
    return myself


def everyone() -> dict[int, Process]:
    """All processes, zombies included."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process}


def descendants(roots: Iterable[int], among: dict[int, Process]) -> set[int]:
    """Pids below ``roots`` in a census, without the roots that nobody else is above."""
    below: dict[int, list[int]] = {}
    for process in among.values():
        below.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        new = set(below.get(todo.pop(), ())) - found
        found |= new
        todo.extend(new)
    return found


def children(pid: int) -> list[int]:
    """Pids of the direct children, zombies included.

    A few microseconds where the kernel lists them, so that a process that forks and exits in a
    loop cannot outrun its killer; a census where it does not.
    """
    found: list[int] = []
    for task in _names(f"/proc/{pid}/task"):
        data = _contents(f"/proc/{pid}/task/{task}/children")
        if data is None and not _HAS_CHILDREN:
            return [process.pid for process in everyone().values() if process.parent == pid]
        found.extend(map(int, (data or b"").split()))
    return found


def offspring(pid: int) -> Iterator[Process]:
    """Living descendants, parents before children, read while they change."""
    todo = [pid]
    while todo:
        for child in children(todo.pop(0)):
            process = read(child)
            if process and process.alive:
                yield process
            todo.append(child)


def holders(variable: str, among: Iterable[Process]) -> dict[str, list[Process]]:
    """Which of the living have ``variable`` in their environment, by its value.

    Not limited to processes of this user: a rank that changed its user is still the run's.
    """
    found: dict[str, list[Process]] = {}
    mark = b"\0" + variable.encode() + b"="
    for process in among:
        if not process.alive:
            continue
        try:
            environment = b"\0" + (_contents(f"/proc/{process.pid}/environ") or b"")
        except PermissionError:  # another user's
            continue
        at = environment.find(mark)
        if at >= 0:
            value = environment[at + len(mark) :].split(b"\0", 1)[0]
            found.setdefault(os.fsdecode(value), []).append(process)
    return found


def boot_id() -> str:
    """Names this boot of the machine: pids and start times mean nothing in another one."""
    data = _contents("/proc/sys/kernel/random/boot_id")
    return data.decode().strip() if data else ""


def _contents(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            parts = []
            while part := file.read(65536):
                parts.append(part)
            return b"".join(parts)
    except (FileNotFoundError, ProcessLookupError):
        return None


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, ProcessLookupError):
        return []


_HAS_CHILDREN = os.path.exists("/proc/thread-self/children")
