"""Cuts what is appended to a file into lines, however it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Line", "Lines"]


class Line(NamedTuple):
    """A line without its end; ``cut`` if it was longer than it may be, and this is its start."""

    data: bytes
    cut: bool


class Lines:
    """The lines of one file.

    A line ends at ``\\n``; with ``returns`` also at ``\\r``, as progress bars write it, and at
    ``\\r\\n``. What has no end yet is not a line yet. Of a line longer than ``most_bytes`` only
    the beginning is kept, and it still counts as one line, when it ends.
    """

    def __init__(self, *, returns: bool, most_bytes: int) -> None:
        self._returns = returns
        self._most_bytes = most_bytes
        self._begun = bytearray()
        self._cut = False
        self._after_return = False  # a newline that comes next belongs to the end before it

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that ``data``, which follows what was fed before, completes."""
        if self._after_return and data:
            self._after_return = False
            data = data.removeprefix(b"\n")
        if self._returns:
            self._after_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._keep(part)
            line = Line(bytes(self._begun), self._cut)
            self._begun.clear()
            self._cut = False
            yield line
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        room = self._most_bytes - len(self._begun)
        self._cut = self._cut or len(part) > room
        self._begun += part[:room]
