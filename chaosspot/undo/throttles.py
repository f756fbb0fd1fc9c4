"""Limit how fast the processes of a control group write to a drive. Standard library only.

Both generations of the kernel's control groups can: ``blkio`` of the first, ``io`` of the second.
Writes past the page cache and synced ones are slowed where they are made. What the kernel writes
back later is limited by the second generation alone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "OWN_GROUPS",
    "Controller",
    "controller",
    "device_of",
    "dissolve",
    "members",
    "move",
]

OWN_GROUPS = "chaosspot-"  # how the names of all groups begin that a run makes
_WITHIN_S = 5.0
_POLL_S = 0.01
_MEMBERS = "cgroup.procs"


class Controller(NamedTuple):
    """Where groups with limits of their own can be made: the directory ``place``. This process
    is in ``home``."""

    generation: int
    place: Path
    home: Path

    def limit(self, group: Path, device: str, write_bytes_per_s: int) -> None:
        """Let the group write no faster than that to the drive (``MAJOR:MINOR``).

        Raises:
            OSError: the kernel refuses.
        """
        if self.generation == 1:
            name, text = "blkio.throttle.write_bps_device", f"{device} {write_bytes_per_s}"
        else:
            name, text = "io.max", f"{device} wbps={write_bytes_per_s}"
        (group / name).write_text(text)

    def written_bytes(self, group: Path, device: str) -> int:
        """What the group has written to the drive since it was made."""
        if self.generation == 1:
            text = (group / "blkio.throttle.io_service_bytes").read_text()
            found = re.search(rf"^{device} Write (\d+)$", text, re.MULTILINE)
        else:
            text = (group / "io.stat").read_text()
            found = re.search(rf"^{device} .*\bwbytes=(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0


def controller(mounts: str | None = None, own: str | None = None) -> Controller | None:
    """What this process may make groups with; None if there is nothing.

    Args:
        mounts, own: contents of ``/proc/self/mountinfo`` and ``/proc/self/cgroup``.
    """
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    paths = {part[1]: part[2] for line in own.splitlines() if len(part := line.split(":", 2)) == 3}
    second: Controller | None = None
    for point, kind, options in _mounted(mounts):
        if kind == "cgroup" and "blkio" in options:
            path = next((p for names, p in paths.items() if "blkio" in names.split(",")), "/")
            place = point / path.lstrip("/")
            place = place if place.is_dir() else point  # seen from a container
            return Controller(1, place, place) if os.access(place, os.W_OK) else None
        if kind == "cgroup2":
            second = _second(point, paths.get("", "/"))
    return second


def _second(point: Path, path: str) -> Controller | None:
    """The nearest group above this process's own that hands the controller on."""
    place = home = point / path.lstrip("/")
    while True:
        with suppress(OSError):
            handed_on = (place / "cgroup.subtree_control").read_text().split()
            if "io" in handed_on and os.access(place, os.W_OK):
                return Controller(2, place, home)
        if place == point:
            return None
        place = place.parent


def _mounted(text: str) -> Iterator[tuple[Path, str, list[str]]]:
    for line in text.splitlines():
        # ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        yield Path(before.split()[4]), kind, options.split(",")


def device_of(path: Path) -> str | None:
    """The whole drive (``MAJOR:MINOR``) that a file is on; None if that is no drive of its own."""
    number = path.stat().st_dev
    known = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not known.exists():  # memory, a network's, or several drives as one
        return None
    disk = known.resolve()
    if (disk / "partition").exists():
        disk = disk.parent
    return (disk / "dev").read_text().strip()


def members(group: Path) -> set[int]:
    """Pids of the processes in it."""
    return {int(pid) for pid in (group / _MEMBERS).read_text().split()}


def move(pids: Iterable[int], group: Path) -> None:
    """Put processes into a group, with all of their threads; those that have ended are left out.

    Raises:
        OSError: the kernel refuses.
    """
    for pid in pids:
        with suppress(ProcessLookupError):
            (group / _MEMBERS).write_text(str(pid))


def dissolve(group: Path, home: Path) -> bool:
    """Let its processes go back to ``home``, and see the group gone; False if there was none.

    Raises:
        OSError: it is still there.
    """
    deadline = time.monotonic() + _WITHIN_S
    while group.is_dir():
        with suppress(FileNotFoundError):
            move(members(group), home)
        try:
            group.rmdir()
        except FileNotFoundError:
            break
        except OSError:  # one has forked meanwhile, or is just ending
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return True
    return False
