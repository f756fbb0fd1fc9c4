"""A node's local disk: a directory that dies with the node."""

from __future__ import annotations

from pathlib import Path

from chaosspot.undo import Directory, Lease

__all__ = ["Flash"]


class Flash:
    """The disk of the incarnations of one node. Methods block: call them in a thread."""

    def __init__(self, *, path: Path, run: Path, lease: Lease) -> None:
        self._path = path
        self._lease = lease
        self._undo = Directory(path=str(path), within=str(run))
        self._token: int | None = None  # of the promise to remove it, while it exists

    def make(self) -> None:
        """A fresh directory, unless one was kept."""
        if self._token is not None and self._path.is_dir():
            return
        if self._token is None:
            self._token = self._lease.promise(self._undo)
        self._undo.heal()
        self._path.mkdir(parents=True)

    def remove(self) -> None:
        """Nothing of it is left when this returns."""
        if self._token is not None:
            self._undo.heal()
            self._lease.kept(self._token)
            self._token = None
