"""What the kernel counts for a container: both versions of control groups."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Cgroup"]


class Cgroup:
    """The control groups of the process ``pid``, found while it lives.

    Raises:
        OSError: there is no such process.
    """

    def __init__(self, pid: int) -> None:
        paths = dict(_paths(pid))
        tops = _tops()
        self._folders = {
            name: Path(top, os.path.relpath(paths[name], root))
            for name, (top, root) in tops.items()
            if name in paths
        }

    def folder(self, controller: str) -> Path:
        """Where that controller's files of the group are.

        Raises:
            OSError: this kernel, or this machine's set-up, does not have it.
        """
        for name in (controller, ""):
            found = self._folders.get(name)
            if found is not None and (found / "cgroup.procs").exists():
                return found
        raise OSError(f"no control group for {controller!r} on this machine")

    def number(self, controller: str, old: str, new: str, key: str = "") -> int:
        """A number that file ``old`` (version 1) or ``new`` holds, in the line of ``key``.

        Raises:
            OSError: there is no such file, or no such line.
        """
        version_1 = controller in self._folders
        path = self.folder(controller) / (old if version_1 else new)
        for line in path.read_text().splitlines():
            name, _, value = line.rpartition(" ")
            if name == key:
                return int(value)
        raise OSError(f"{path} says nothing of {key!r}")

    @property
    def memory_bytes(self) -> int:
        return self.number("memory", "memory.usage_in_bytes", "memory.current")

    @property
    def memory_kills(self) -> int:
        """How many processes the kernel has killed because there was no memory left."""
        return self.number("memory", "memory.oom_control", "memory.events", "oom_kill")

    @property
    def throttled(self) -> int:
        """In how many periods its processes wanted more time than they may have."""
        return self.number("cpu", "cpu.stat", "cpu.stat", "nr_throttled")

    @property
    def frozen(self) -> bool:
        if "freezer" in self._folders:
            return (self.folder("freezer") / "freezer.state").read_text().strip() == "FROZEN"
        return bool(self.number("", "", "cgroup.events", "frozen"))


def _paths(pid: int) -> list[tuple[str, str]]:
    """By controller, the group of a process; "" is the one of version 2."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found += [(name, path) for name in controllers.split(",")]
    return found


def _tops() -> dict[str, tuple[str, str]]:
    """By controller, where its groups are mounted, and which group is the topmost there."""
    found: dict[str, tuple[str, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            found.setdefault(name, (point, root))
    return found
