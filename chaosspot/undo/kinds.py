"""What can be undone: one struct a kind, in one closed union.

A later kind (a firewall rule, a container) is one more struct here and one more name in
:data:`Undo`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Self

import msgspec

from chaosspot.undo import docker, ending, mounts, pausing, procfs, throttles, toxiproxy
from chaosspot.undo.procfs import Process
from chaosspot.words import count

__all__ = [
    "OWN_MOUNTS",
    "Containers",
    "Directory",
    "Mount",
    "Paused",
    "ProcessTree",
    "Proxies",
    "Throttled",
    "Undo",
]

OWN_MOUNTS = "chaosspot/"  # how the names of all file systems begin that a run mounts
_OWN_LEASE = re.compile(r"\d{8}T\d{6}-\d+-[0-9a-f]{8}")
_OWN_PROXIES = re.compile(r"chaosspot-\d{8}T\d{6}-\d+-[0-9a-f]{8}\.")  # with the lease's id


class _Undo(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"
):
    def describe(self) -> str:
        """What there is to undo, for people."""
        raise NotImplementedError

    def heal(self) -> str | None:
        """Undo it and see that it is undone; says what was done, None if nothing was left.

        May be called any number of times, by any process of this user.

        Raises:
            OSError: it is not undone.
        """
        raise NotImplementedError


class ProcessTree(_Undo, frozen=True, tag="process-tree"):
    """A node's processes: what is below its supervisor, and what holds its cookie.

    Written without ``supervisor`` before the supervisor is started, with it afterwards.
    """

    name: str
    cookie: str
    boot: str
    supervisor: int | None = None
    start_ticks: int = 0

    def describe(self) -> str:
        who = f" (supervisor {self.supervisor})" if self.supervisor else ""
        return f"processes of {self.name}{who}"

    def heal(self) -> str | None:
        if self.boot != procfs.boot_id():
            return None  # no process outlives its boot
        root = None
        if self.supervisor is not None:
            root = Process(self.supervisor, 0, self.start_ticks, alive=True)
        taken = ending.end(root, procfs.TREE, self.cookie)
        if not taken:
            return None
        pids = ", ".join(map(str, taken[:8])) + (", ..." if len(taken) > 8 else "")
        who = f" (supervisor {self.supervisor})" if self.supervisor else ""
        return f"killed {count(len(taken), 'process', 'processes')} of {self.name}{who}: {pids}"


class Paused(_Undo, frozen=True, tag="paused"):
    """A node whose processes are stopped: all below its supervisor, and what holds its cookie."""

    name: str
    cookie: str
    boot: str
    supervisor: int
    start_ticks: int

    def describe(self) -> str:
        return f"pause of {self.name}"

    def heal(self) -> str | None:
        if self.boot != procfs.boot_id():
            return None
        root = Process(self.supervisor, 0, self.start_ticks, alive=True)
        tree = ending.members(root, procfs.TREE, self.cookie)
        asleep = [process for process in tree if procfs.stopped(process.pid)]
        pausing.go_on(asleep)
        what = count(len(asleep), "process", "processes")
        return f"resumed {what} of {self.name}" if asleep else None


class Directory(_Undo, frozen=True, tag="directory"):
    """A directory that must not outlive the run. ``within`` is the directory it may be in."""

    path: str
    within: str

    def describe(self) -> str:
        return f"directory {self.path}"

    def heal(self) -> str | None:
        path, within = Path(self.path), Path(self.within)
        if not os.path.lexists(path):
            return None
        real = path.parent.resolve() / path.name
        limit = within.resolve()
        # A record is a file that anyone may have damaged, and what it asks for cannot be undone.
        if limit in (Path(limit.anchor), Path.home()) or path.name in ("", "..", "."):
            raise OSError(f"refuses to remove {self.path}: {self.within} is no place for a run")
        if limit not in real.parents:
            raise OSError(f"refuses to remove {self.path}: it is not inside {self.within}")
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
        if os.path.lexists(path):
            raise OSError(f"{self.path} came back after it was removed")
        return f"removed {self.describe()}"


class Mount(_Undo, frozen=True, tag="mount"):
    """A file system that must not outlive the run; ``source`` is the name it was mounted with."""

    path: str
    source: str

    def describe(self) -> str:
        return f"file system at {self.path}"

    def heal(self) -> str | None:
        if not self.source.startswith(OWN_MOUNTS):
            raise OSError(f"refuses to unmount {self.path}: {self.source!r} is none of a run's")
        if not mounts.unmount(Path(self.path), self.source):
            return None
        return f"unmounted {self.describe()}"


class Throttled(_Undo, frozen=True, tag="throttled"):
    """A control group whose processes write slowly; they go back to the one at ``home``."""

    name: str
    group: str
    home: str

    def describe(self) -> str:
        return f"slow flash of {self.name}"

    def heal(self) -> str | None:
        group = Path(self.group)
        if not group.name.startswith(throttles.OWN_GROUPS):
            raise OSError(f"refuses to dissolve {self.group}: it is none of a run's")
        if not throttles.dissolve(group, Path(self.home)):
            return None
        return f"ended the {self.describe()}"


class Proxies(_Undo, frozen=True, tag="proxies"):
    """Proxies in a Toxiproxy server that outlives the run: those whose names begin with ``prefix``.

    A server that is gone has none any more.
    """

    url: str
    prefix: str

    @classmethod
    def of(cls, lease: str, url: str) -> Self:
        """Those of the run with that lease."""
        return cls(url=url, prefix=f"chaosspot-{lease}.")

    def describe(self) -> str:
        return f"proxies {self.prefix}* at {self.url}"

    def heal(self) -> str | None:
        if not _OWN_PROXIES.fullmatch(self.prefix):
            raise OSError(f"refuses to remove {self.describe()}: they are not a run's")
        taken = toxiproxy.remove(self.url, self.prefix)
        if not taken:
            return None
        what = count(len(taken), "proxy", "proxies")
        return f"removed {what} at {self.url}: {', '.join(taken)}"


class Containers(_Undo, frozen=True, tag="containers"):
    """All that a Docker daemon has of a run: containers, networks and volumes, found by label.

    Written before the first of them is made. What has another label, or none, is not touched.
    """

    socket: str
    lease: str

    def describe(self) -> str:
        return f"containers and networks of the run at {self.socket}"

    def heal(self) -> str | None:
        if not _OWN_LEASE.fullmatch(self.lease):
            raise OSError(f"refuses to remove {self.describe()}: {self.lease!r} is no lease")
        taken = docker.remove(self.socket, [f"{docker.LEASE}={self.lease}"])
        if not taken:
            return None
        shown = ", ".join(taken[:8]) + (", ..." if len(taken) > 8 else "")
        return f"removed {count(len(taken), 'thing')} of the docker daemon: {shown}"


Undo = ProcessTree | Paused | Directory | Mount | Throttled | Proxies | Containers
