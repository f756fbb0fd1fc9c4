"""What is done to a node's tree that lives on: pause it, let it go on, kill one child."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence

from chaosspot.undo import Lease, Paused, ProcessTree, pausing, procfs
from chaosspot.undo.ending import send
from chaosspot.undo.procfs import Process

__all__ = ["Grip"]

_DIES_S = 5.0  # SIGKILL acts at once unless the process hangs in the kernel
_POLL_S = 0.001


class Grip:
    """Of one incarnation, from its start to its end. Methods block: call them in a thread.

    Everything is found by ancestry below the supervisor, which is never touched itself.
    """

    def __init__(self, *, tree: ProcessTree, mains: Sequence[Process], lease: Lease) -> None:
        self._supervisor = tree.supervisor or 0
        self._mains = {process.pid for process in mains}
        self._lease = lease
        self._undo = Paused(
            name=tree.name,
            cookie=tree.cookie,
            boot=tree.boot,
            supervisor=self._supervisor,
            start_ticks=tree.start_ticks,
        )
        self._lock = threading.Lock()
        self._ended = False
        self._pauses = 0  # one fault may pause a node that another has paused already
        self._asleep: list[Process] = []
        self._token = 0

    def pause(self) -> float | None:
        """Stop all of the tree; when it was seen stopped, None if nothing of it lives."""
        with self._lock:
            if self._ended:
                return None
            if self._pauses == 0:
                self._token = self._lease.promise(self._undo)
                try:
                    self._asleep = self._stop()
                except OSError:
                    self._lease.kept(self._token)
                    raise
                if not self._asleep:
                    self._lease.kept(self._token)
                    return None
            self._pauses += 1
            return time.monotonic()

    def resume(self) -> None:
        """Take one pause back; with the last one the tree goes on."""
        with self._lock:
            if self._ended or self._pauses == 0:
                return
            if self._pauses == 1:
                self._go_on()
                self._lease.kept(self._token)
            self._pauses -= 1

    def _stop(self) -> list[Process]:
        return pausing.stop(self._supervisor)

    def _go_on(self) -> None:
        pausing.go_on(self._asleep)

    def let_go(self) -> None:
        """The tree is gone: nothing is left to be resumed."""
        with self._lock:
            self._ended = True
            if self._pauses:
                self._lease.kept(self._token)

    def kill_child(self) -> float | None:
        """SIGKILL the youngest leaf below the ranks; when it was seen gone, None without one."""
        while (child := self._youngest()) is not None:
            if not send(child, signal.SIGKILL):
                continue  # it has just ended by itself
            deadline = time.monotonic() + _DIES_S
            while child.is_now():
                if time.monotonic() > deadline:
                    raise OSError(f"pid {child.pid} still lives {_DIES_S} s after SIGKILL")
                time.sleep(_POLL_S)
            return time.monotonic()
        return None

    def _youngest(self) -> Process | None:
        """Nobody is younger than one's children: the youngest of all has none."""
        below = (p for p in procfs.offspring(self._supervisor) if p.pid not in self._mains)
        return max(below, key=lambda p: (p.start_ticks, p.pid), default=None)
