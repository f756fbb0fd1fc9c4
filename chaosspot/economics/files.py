"""What a command was asked to write is there as a whole, or what was there before is."""

from __future__ import annotations

from pathlib import Path

from chaosspot.conductor import rundir

__all__ = ["write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is new or a regular one: nothing else is replaced.

    Raises:
        ValueError: it cannot be written; with the path and the reason.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"cannot write {str(path)!r}: there is something that is no file")
    try:
        rundir.write(path.resolve(), data)  # what a link points to is written, not the link
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror}") from error
