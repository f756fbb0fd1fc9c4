"""What containers leave in the kernel of this machine: rules, links, mounts, network namespaces.

The daemon's own lists do not show these. A network namespace lives by a process in it or by a
mount of its file; processes are looked for elsewhere, and the mounts are among those here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["traces"]

_LINKS = ("veth", "br-")  # what the daemon calls the ends of containers, and networks
_KINDS = ("nsfs", "overlay", "tmpfs", "shm")


def traces(run: Path) -> set[str]:
    """All that containers on bridge networks have of it, and mounts below ``run``, to compare."""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    rules = (line for line in saved.splitlines() if "br-" in line or "CHAOSSPOT" in line)
    links = (link.name for link in Path("/sys/class/net").iterdir())
    return {
        *(f"rule {rule}" for rule in rules),
        *(f"link {name}" for name in links if name.startswith(_LINKS)),
        *(f"mount {point}" for point in _mounts(run)),
    }


def _mounts(run: Path) -> list[str]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()[0]
        of_daemon = "/netns/" in point or "/containers/" in point or "/overlay2/" in point
        if point.startswith(f"{run}/") or (kind in _KINDS and of_daemon):
            found.append(point)
    return found
