"""Pausing a container by the freezer of its control group: no signal, which could be blocked."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from chaosspot.cluster.cgroup import Cgroup
from chaosspot.cluster.daemon import Daemon, DaemonError
from chaosspot.cluster.grip import Grip
from chaosspot.undo.procfs import Process

__all__ = ["Freezer", "FrozenGrip"]

_SEEN_S = 5.0
_POLL_S = 0.01


class Freezer:
    """Of the container ``which``, whose first process is ``init``. Methods block.

    Raises:
        OSError: from every method: it did not come to that in time, or the daemon says no.
    """

    def __init__(self, daemon: Daemon, which: str, init: Process, node: str) -> None:
        self.init = init
        self._daemon = daemon
        self._which = which
        self._node = node

    def freeze(self) -> bool:
        """Freeze it, seen; False if it has ended."""
        try:
            self._daemon.pause(self._which)
        except DaemonError:
            if not self.init.is_now():
                return False
            raise
        deadline = time.monotonic() + _SEEN_S
        while not self._frozen():
            if time.monotonic() > deadline:
                raise OSError(f"{self._node}: not frozen {_SEEN_S} s after it was paused")
            time.sleep(_POLL_S)
        return True

    def thaw(self) -> None:
        """Let it go on, seen; nothing if it has ended."""
        self._daemon.unpause(self._which)
        deadline = time.monotonic() + _SEEN_S
        while self.init.is_now():
            with contextlib.suppress(OSError):  # it has just ended
                if not self._frozen():
                    return
            if time.monotonic() > deadline:
                raise OSError(f"{self._node}: still frozen {_SEEN_S} s after it was resumed")
            time.sleep(_POLL_S)

    def _frozen(self) -> bool:
        if not self.init.is_now():
            raise OSError(f"{self._node} is gone")
        return Cgroup(self.init.pid).frozen


class FrozenGrip(Grip):
    """A grip that pauses by a freezer."""

    def __init__(self, freezer: Freezer, **more: Any) -> None:
        super().__init__(**more)
        self.freezer = freezer
        self.frozen = False

    def _stop(self) -> list[Process]:
        self.frozen = self.freezer.freeze()
        return [self.freezer.init] if self.frozen else []

    def _go_on(self) -> None:
        self.freezer.thaw()
        self.frozen = False
