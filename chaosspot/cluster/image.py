"""What is inside of a container: this machine's own programs, read-only, or a real image.

Without an image a container starts from an empty one. ``/usr``, the interpreter, its packages and
the trainer's files are this machine's, so that what runs is what runs here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from chaosspot import content
from chaosspot.cluster.daemon import Daemon, DaemonError, folders

__all__ = ["Inside", "of_image", "of_machine"]

_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
_FOLDERS = ["usr", "etc", "tmp", "proc", "sys", "dev", "run", "var", "opt"]
_SYSTEM = (
    "/usr",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl",
)
_TAG = "1"  # of the empty image: to be changed with its contents
_TOO_MUCH = ("/", "/tmp", "/usr", "/etc", "/proc", "/sys", "/dev", "/run", "/var")
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_MACHINE = ("LD_LIBRARY_PATH", "VIRTUAL_ENV", "PATH", "HOME")  # say nothing inside of an image


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """The image, what is mounted read-only, the interpreter, and what the environment becomes.

    ``drops`` are variables of the harness that mean nothing inside.
    """

    image: str
    reads: tuple[str, ...]
    python: str
    environment: dict[str, str] = {}
    drops: tuple[str, ...] = ("TMPDIR",)


def of_machine(daemon: Daemon, reads: Iterable[Path]) -> Inside:
    """This machine's own programs; ``reads`` are more files and folders that are seen inside.

    Raises:
        OSError: its programs do not lie where they have to, or the daemon says no.
    """
    for name, target in _LINKS.items():
        place = Path("/", name)
        if place.exists() and place.resolve() != Path("/", target):
            raise DaemonError(
                f"{place} is not {target}: the programs of this machine cannot be put into a "
                "container, say which --image"
            )
    image = daemon.base_image(folders(_FOLDERS, _LINKS), _TAG)
    wanted = [*_SYSTEM, sys.base_prefix, sys.prefix, *_ours(), *map(str, reads)]
    return Inside(image=image, reads=_apart(wanted), python=sys.executable)


def of_image(daemon: Daemon, name: str, reads: Iterable[Path]) -> Inside:
    """A real image, which has an interpreter and what the trainer needs.

    Raises:
        DaemonError: there is no such image.
    """
    told = daemon.image(name)
    said = dict(line.split("=", 1) for line in told["Config"].get("Env") or () if "=" in line)
    own = {"PATH": said.get("PATH", _USUAL_PATH), "HOME": said.get("HOME", "/root")}
    return Inside(
        image=name,
        reads=_apart([*_ours(), *map(str, reads)]),
        python="python3",
        environment={**said, **own},
        drops=("TMPDIR", *_OF_MACHINE),
    )


def _ours() -> list[str]:
    """The files of this package, those of the catalogue, and the working directory."""
    return [str(Path(__file__).parents[1]), str(content.content_root()), str(Path.cwd())]


def _apart(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that exist, without those that lie within others and those that would hide others."""
    real = sorted({os.path.abspath(path) for path in paths if os.path.exists(path)})
    allowed = [path for path in real if path in _SYSTEM or path not in _TOO_MUCH]
    return tuple(
        path
        for path in allowed
        if not any(path != other and Path(other) in Path(path).parents for other in allowed)
    )
