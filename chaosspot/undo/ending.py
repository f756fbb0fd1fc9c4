"""End process trees for certain: by ancestry from above, or by ancestry and cookie from outside.

Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from chaosspot.undo import procfs
from chaosspot.undo.procfs import Process

__all__ = ["Pace", "become_subreaper", "end", "members", "send", "sweep"]

_PR_SET_CHILD_SUBREAPER = 36
_END_S = 5.0  # SIGKILL acts at once unless the process hangs in the kernel (dead NFS, driver)


def become_subreaper() -> None:
    """Let orphaned descendants come to this process instead of init.

    From then on this process has no child if and only if it has no descendant: the kernel
    re-parents an orphan before it lets the parent be waited for.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(error)}")


def send(process: Process, number: int) -> bool:
    """Signal this process and no other that got its pid since; False if it is no more."""
    if not hasattr(os, "pidfd_open"):  # a Python built against old kernel headers
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.is_now():
                os.kill(process.pid, number)
                return True
        return False
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # The handle pins one process; the start time says whether it is the right one.
        now = procfs.read(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


def sweep(number: int = signal.SIGKILL, *, spare: frozenset[int] = frozenset()) -> set[Process]:
    """Signal every living descendant of this process once, parents first; returns them.

    ``spare`` names direct children that are left alone with all below them. With SIGKILL the
    caller repeats it until it has no child left: what is forked meanwhile comes up to it.
    """
    hit = set()
    for child in procfs.children(os.getpid()):
        if child in spare:
            continue
        process = procfs.read(child)
        family = [process] if process and process.alive else []
        for member in (*family, *procfs.offspring(child)):
            if send(member, number):
                hit.add(member)
    return hit


class Pace:
    """How long to wait between two sweeps: shortest while new victims turn up."""

    def __init__(self) -> None:
        self._known: set[Process] = set()
        self._pause_s = 0.0

    def pause_s(self, hit: set[Process]) -> float:
        """The pause after a sweep that hit these."""
        fresh = {process._replace(parent=0) for process in hit} - self._known
        self._known |= fresh
        self._pause_s = 0.0005 if fresh else min(0.05, self._pause_s * 2 + 0.0005)
        return self._pause_s


def members(root: Process | None, variable: str, value: str) -> list[Process]:
    """The living of a tree seen from outside, the root last.

    They are ``root`` and its descendants, and whoever holds the cookie, and their descendants.
    """
    census = procfs.everyone()
    marked = {p.pid for p in procfs.holders(variable, census.values()).get(value, ())}
    top = census.get(root.pid) if root else None
    if top and root and top.start_ticks == root.start_ticks:
        marked.add(top.pid)
    pids = (marked | procfs.descendants(marked, census)) - {os.getpid()}
    found = [census[pid] for pid in pids if census[pid].alive]
    return sorted(found, key=lambda process: root is not None and process.pid == root.pid)


def end(root: Process | None, variable: str, value: str, *, within_s: float = _END_S) -> list[int]:
    """Kill a tree from outside and see that it is gone; returns the pids it took.

    The root goes last: as the subreaper of its tree it keeps ancestry complete.

    Raises:
        OSError: something still lives after ``within_s``; names the pids.
    """
    taken: set[int] = set()
    deadline = time.monotonic() + within_s
    pace = Pace()
    empty = 0
    # Twice: for a moment within execve a process has no environment to be found by.
    while empty < 2:
        left = members(root, variable, value)
        below = [process for process in left if root is None or process.pid != root.pid]
        hit = {process for process in below or left if send(process, signal.SIGKILL)}
        taken |= {process.pid for process in hit}
        empty = 0 if left else empty + 1
        if left and time.monotonic() > deadline:
            raise OSError(f"still alive {within_s} s after SIGKILL: {_named(left)}")
        time.sleep(pace.pause_s(hit))
    return sorted(taken)


def _named(processes: list[Process]) -> str:
    lines = []
    for process in processes[:10]:
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/comm") as file:
            lines.append(f"pid {process.pid} ({file.read().strip()})")
    return ", ".join(lines) or "pids that have ended since"
