"""Where leases are, and what is in one.

Per user and not per working directory: a start in any folder finds what a dead run left.

====================  ========================================================================
``lease.json``        who holds it (:class:`Owner`)
``lock``              held by the harness and its guardian; free means that both are dead
``undo.jsonl``        what is to undo (:mod:`chaosspot.undo.journal`)
``guardian.log``      output of the guardian
``healed.json``       what the guardian undid after the harness died (:class:`Rescue`)
====================  ========================================================================
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

__all__ = [
    "Owner",
    "Rescue",
    "StateError",
    "leases",
    "naming",
    "read",
    "ready",
    "take_lock",
    "write",
]

T = TypeVar("T")


class StateError(RuntimeError):
    """The state directory cannot be used: without it nothing may be done that has to be undone."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The harness process that opened a lease, and its run."""

    id: str
    pid: int
    start_ticks: int
    boot: str
    run: str
    argv: tuple[str, ...]
    started_wall_s: float


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """What a guardian did after its harness died."""

    healed: tuple[str, ...]
    problems: tuple[str, ...]


def leases() -> Path:
    """The directory of all leases of this user."""
    home = os.environ.get("CHAOSSPOT_STATE_HOME")
    if not home:
        base = os.environ.get("XDG_STATE_HOME", "")
        # The XDG standard has relative paths ignored: they would depend on the working directory.
        home = str((Path(base) if os.path.isabs(base) else Path("~/.local/state")) / "chaosspot")
    return Path(home).expanduser().absolute() / "leases"


def ready() -> Path:
    """The directory of all leases, made if need be and tried out.

    Raises:
        StateError: no lease can be made there; names the path.
    """
    home = leases()
    trial = home / f".new-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        trial.mkdir(mode=0o700)
        trial.rmdir()
    except OSError as error:
        raise StateError(
            f"the state directory {str(home)!r} cannot be used: {error.strerror}; "
            "CHAOSSPOT_STATE_HOME says where it is to be"
        ) from error
    return home


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of writing names the file, which the system does not say."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def take_lock(directory: Path) -> int | None:
    """The lock of a lease as a descriptor to close; None if somebody holds it or it is gone."""
    path = directory / "lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It may have been removed between the two calls, by its owner or by another start.
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def write(path: Path, value: msgspec.Struct) -> None:
    """Write a JSON file whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    with naming(path):
        with open(temporary, "wb") as file:
            file.write(msgspec.json.encode(value) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def read(path: Path, into: type[T]) -> T:
    """Read one of the JSON files.

    Raises:
        OSError: it cannot be read.
        ValueError: it does not hold what it should.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=into)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}") from error
