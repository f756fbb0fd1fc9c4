"""Stop a process tree and let it go on, both verified from outside. Standard library only."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from chaosspot.undo import procfs
from chaosspot.undo.ending import send
from chaosspot.undo.procfs import Process

__all__ = ["go_on", "stop"]

_WITHIN_S = 5.0
_TRY_S = 0.5  # a process needs milliseconds to stop, unless it waits in the kernel
_POLL_S = 0.001


def stop(top: int) -> list[Process]:
    """Stop every living descendant of process ``top``, not itself; returns those it stopped.

    Empty when there was none. What had been stopped before is left as it was.

    Raises:
        OSError: one does not stop; those that did go on again.
    """
    deadline = time.monotonic() + _WITHIN_S
    while True:
        taken: set[Process] = set()
        try:
            if _all_stopped(top, taken, within_s=_TRY_S):
                return sorted(taken)
        except BaseException:
            go_on(taken)
            raise
        # The parent of a child stopped between vfork and exec cannot stop before the child goes on.
        go_on(taken)
        if time.monotonic() > deadline:
            restless = [p.pid for p in procfs.offspring(top) if not procfs.stopped(p.pid)]
            raise OSError(f"still running {_WITHIN_S} s after SIGSTOP: pids {restless}")
        time.sleep(0.02)


def go_on(processes: Iterable[Process]) -> None:
    """Let these go on, as far as they live, and see that they do.

    Raises:
        OSError: one stays stopped.
    """
    deadline = time.monotonic() + _WITHIN_S
    asleep = list(processes)
    while True:
        asleep = [process for process in asleep if send(process, signal.SIGCONT)]
        asleep = [process for process in asleep if procfs.stopped(process.pid) and process.is_now()]
        if not asleep:
            return
        if time.monotonic() > deadline:
            pids = [process.pid for process in asleep]
            raise OSError(f"still stopped {_WITHIN_S} s after SIGCONT: pids {pids}")
        time.sleep(_POLL_S)


def _all_stopped(top: int, taken: set[Process], *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    still = 0
    # Twice: an orphan may go up to a parent whose children had been listed already.
    while still < 2:
        restless = [p for p in procfs.offspring(top) if not procfs.stopped(p.pid)]
        for process in restless:
            if send(process, signal.SIGSTOP):
                taken.add(process._replace(parent=0))
        still = 0 if restless else still + 1
        if restless:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
    return True
