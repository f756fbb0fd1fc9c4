"""A node's flash that writes slowly for a while: its processes, in a control group of their own."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from chaosspot.undo import Lease, ProcessTree, Throttled, procfs, throttles
from chaosspot.undo.throttles import Controller

__all__ = ["Throttle", "lacking"]

_WITHIN_S = 5.0  # a tree that forks faster than it can be moved


def lacking(folder: Path) -> str | None:
    """Why a flash in ``folder``, which need not be there yet, cannot be slowed; None if it can."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        _drive(there)
    except OSError as error:
        return str(error)
    return None


def _drive(folder: Path) -> tuple[Controller, str]:
    """What can limit the speed of the drive that ``folder`` is on, and that drive."""
    control = throttles.controller()
    if control is None:
        raise OSError("no control group with blkio or io can be made by this process: run as root")
    device = throttles.device_of(folder)
    if device is None:
        raise OSError(f"{folder} is not on a drive of its own, whose speed could be limited")
    return control, device


class Throttle:
    """Of one incarnation, from its start to its end. Methods block: call them in a thread."""

    def __init__(self, *, tree: ProcessTree, flash: Path, lease: Lease) -> None:
        self._name = tree.name
        self._supervisor = tree.supervisor or 0
        self._flash = flash
        self._lease = lease
        self._lock = threading.Lock()
        self._ended = False
        self._promised: tuple[int, Throttled] | None = None  # while it is slow
        self._limits: list[int] = []  # one fault may slow a node that another has slowed already
        self._drive: tuple[Controller, str] | None = None
        self._written_bytes = 0

    def slow(self, write_bytes_per_s: int) -> float | None:
        """Limit all of the tree; when that was done, None if nothing of it lives.

        Limits may overlap: the lowest holds until the last is taken away.

        Raises:
            OSError: it cannot be slowed.
        """
        with self._lock:
            if self._ended:
                return None
            if self._promised and self._drive:
                control, device = self._drive
                lowest = min(write_bytes_per_s, *self._limits)
                control.limit(Path(self._promised[1].group), device, lowest)
                self._limits.append(write_bytes_per_s)
                return time.monotonic()
            control, device = _drive(self._flash)
            group = control.place / f"{throttles.OWN_GROUPS}{self._lease.id}.{self._name}"
            undo = Throttled(name=self._name, group=str(group), home=str(control.home))
            self._promised = self._lease.promise(undo), undo
            self._drive = control, device
            try:
                group.mkdir()
                control.limit(group, device, write_bytes_per_s)
                self._move_into(group)
            except OSError:
                self._mend()
                raise
            self._limits = [write_bytes_per_s]
            return time.monotonic()

    def mend(self) -> int:
        """Take one limit away; how many bytes were written since the first.

        None are while the flash is empty: those went somewhere else on the same drive.
        """
        with self._lock:
            if self._limits[1:]:
                self._limits.pop()
                self._count()
            else:
                self._mend()
            return self._written_bytes

    def let_go(self) -> None:
        """The tree is gone: nothing of it is slow any more."""
        with self._lock:
            self._ended = True
            self._mend()

    def _mend(self) -> None:
        if self._promised is None or self._drive is None:
            return
        token, undo = self._promised
        self._count()
        undo.heal()
        self._lease.kept(token)
        self._promised = None

    def _count(self) -> None:
        if self._promised and self._drive and (group := Path(self._promised[1].group)).is_dir():
            control, device = self._drive
            if not self._flash.is_dir() or any(self._flash.iterdir()):
                self._written_bytes = control.written_bytes(group, device)

    def _move_into(self, group: Path) -> None:
        """All of the tree but its supervisor. Twice, for what is forked meanwhile."""
        deadline = time.monotonic() + _WITHIN_S
        still = 0
        while still < 2:
            there = throttles.members(group)
            outside = [p.pid for p in procfs.offspring(self._supervisor) if p.pid not in there]
            throttles.move(outside, group)
            still = 0 if outside else still + 1
            if time.monotonic() > deadline:
                raise OSError(f"{self._name} forks faster than it can be moved: pids {outside}")
