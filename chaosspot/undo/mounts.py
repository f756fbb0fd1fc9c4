"""Mount and unmount small file systems in memory. Standard library only: the guardian uses it."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
from pathlib import Path

__all__ = ["may_mount", "mount_tmpfs", "mounted", "unmount"]

_MS_NOSUID = 2
_MS_NODEV = 4
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_CAP_SYS_ADMIN = 21
_BUSY_S = 1.0  # a file closes with the last process that has it open, which may just be ending


def may_mount() -> bool:
    """Whether this process has the right to mount (CAP_SYS_ADMIN)."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        held = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> _CAP_SYS_ADMIN & 1)


def mount_tmpfs(path: Path, *, source: str, size_bytes: int) -> None:
    """Mount an empty file system of that size (rounded up to pages); ``source`` names it.

    Raises:
        OSError: it cannot be mounted.
    """
    options = f"size={size_bytes},mode=0755".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    if libc.mount(source.encode(), os.fsencode(path), b"tmpfs", flags, options):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))


def mounted(path: Path, source: str) -> int:
    """How many file systems of that name are mounted at ``path``, one over another."""
    real = os.fsencode(path.parent.resolve() / path.name)
    found = 0
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            # ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS
            before, _, after = line.partition(b" - ")
            point, name = before.split()[4], after.split()[1]
            found += _plain(point) == real and _plain(name) == source.encode()
    return found


def unmount(path: Path, source: str) -> bool:
    """Unmount what of that name is at ``path`` and see it gone; False if nothing was.

    What stays busy is detached: nobody can reach it any more, and it ends with its last user.

    Raises:
        OSError: it is still there.
    """
    if not mounted(path, source):
        return False
    deadline = time.monotonic() + _BUSY_S
    libc = ctypes.CDLL(None, use_errno=True)
    while mounted(path, source):
        flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if time.monotonic() > deadline else 0)
        if libc.umount2(os.fsencode(path), flags):
            code = ctypes.get_errno()
            if code != errno.EBUSY:
                if not mounted(path, source):  # by somebody else, meanwhile
                    break
                raise OSError(code, f"cannot unmount: {os.strerror(code)}", str(path))
            time.sleep(0.01)
    return True


def _plain(field: bytes) -> bytes:
    r"""The table writes blanks and backslashes as ``\040`` and the like."""
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field)
