"""aws-chunked bodies, with and without signatures and trailers, decoded as they come: pure.

Signatures are not verified: the store does not know who signed.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html
"""

from __future__ import annotations

from typing import Literal

__all__ = ["AwsChunked", "FramingError"]

_LINE_MAX_BYTES = 4096
_MOST = 8  # trailers


class FramingError(ValueError):
    """These bytes are not aws-chunked."""


class AwsChunked:
    """Feed it bytes however they were cut; ``done`` once the last chunk and trailer were seen."""

    def __init__(self) -> None:
        self.trailers: dict[str, str] = {}
        self.done = False
        self._line = bytearray()
        self._left = 0
        self._expects: Literal["size", "data", "end of data", "trailer"] = "size"

    def feed(self, data: bytes) -> bytes:
        """The bytes of the object in ``data``.

        Raises:
            FramingError: with what was wrong.
        """
        view = memoryview(data)
        found = []
        while view:
            if self.done:
                raise FramingError("bytes after the last chunk")
            if self._expects == "data":
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                found.append(piece)
                if not self._left:
                    self._expects = "end of data"
                continue
            view = self._take_line(view)
        return b"".join(found)

    def _take_line(self, view: memoryview) -> memoryview:
        """Use up the bytes to the end of a line, or all when it does not end here."""
        end = bytes(view[: _LINE_MAX_BYTES + 2]).find(b"\n")
        upto = len(view) if end < 0 else end + 1
        self._line += view[:upto]
        if len(self._line) > _LINE_MAX_BYTES:
            raise FramingError("a line without end where a chunk's size or a trailer is due")
        if end >= 0:
            line, self._line = bytes(self._line), bytearray()
            if not line.endswith(b"\r\n"):
                raise FramingError(f"a line that does not end with CR LF: {line[:60]!r}")
            self._read_line(line[:-2])
        return view[upto:]

    def _read_line(self, line: bytes) -> None:
        match self._expects:
            case "size":
                digits, _, _ = line.partition(b";")
                if not digits or digits.strip(b"0123456789abcdefABCDEF") or len(digits) > 16:
                    raise FramingError(f"not the size of a chunk: {line[:60]!r}")
                self._left = int(digits, 16)
                self._expects = "data" if self._left else "trailer"
            case "end of data":
                if line:
                    raise FramingError(f"a chunk is longer than its size: {line[:60]!r}")
                self._expects = "size"
            case _ if line:
                name, colon, value = line.decode("latin-1").partition(":")
                name = name.strip().lower()
                if not colon or not name or name in self.trailers or len(self.trailers) >= _MOST:
                    raise FramingError(f"not a trailer, or one too many: {line[:60]!r}")
                self.trailers[name] = value.strip()
            case _:
                self.done = True
