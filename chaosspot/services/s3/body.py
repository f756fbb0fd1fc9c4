"""Takes the body of a request in: off its framing, verified, and held on disk when it is large.

The whole body is here before any of it is passed on: one that is cut short or has a wrong sum
never reaches the store, whatever it would make of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from typing import IO

from aiohttp import web

from chaosspot.services.s3.chunked import AwsChunked, FramingError
from chaosspot.services.s3.errors import Refused
from chaosspot.services.s3.sums import Sums, expected

__all__ = ["Body", "receive"]

_IN_MEMORY_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18
_MAX_BYTES = 5 << 30


class Body:
    """What a request carried; ``algorithm`` and ``value`` of a checksum that was right, or empty.

    ``sha256`` is of what it carried. ``encodings`` are those that the client gave the object,
    without that of the framing.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.framed = False
        self.encodings = ""
        self.algorithm = ""
        self.value = ""
        self.sha256 = ""
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115

    def write(self, data: bytes) -> None:
        self.size_bytes += len(data)
        self._file.write(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            yield piece

    def read(self) -> bytes:
        """All of it at once, for what cannot be long."""
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        self._file.close()


async def receive(received: web.BaseRequest, *, is_object: bool, of_body: bool) -> Body:
    """The request's body; the caller closes it.

    Args:
        is_object: the body is bytes of an object, which must have a length.
        of_body: checksum headers are the body's, not those of an object elsewhere.

    Raises:
        Refused: it is not what its headers say.
    """
    headers = received.headers
    encodings = [e.strip() for e in headers.get("Content-Encoding", "").split(",") if e.strip()]
    streams = headers.get("x-amz-content-sha256", "").upper().startswith("STREAMING-")
    body = Body()
    body.framed = streams or any(e.lower() == "aws-chunked" for e in encodings)
    body.encodings = ",".join(e for e in encodings if e.lower() != "aws-chunked")
    try:
        length = _length(received, framed=body.framed, is_object=is_object)
        wanted = expected(headers, of_body=of_body)
        if wanted.trailer and not body.framed:
            raise Refused("MalformedTrailerError")
        if headers.get("Expect", "").lower() == "100-continue":
            await received.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            received.writer.output_size = 0
        sums = Sums(wanted)
        framing = AwsChunked() if body.framed else None
        while data := await received.content.readany():
            piece = framing.feed(data) if framing else data
            sums.update(piece)
            body.write(piece)
            if body.size_bytes > length:
                break
        if body.size_bytes != length or (framing and not framing.done):
            raise Refused("IncompleteBody")
        body.sha256 = sums.sha256()
        body.algorithm, body.value = sums.verify(framing.trailers if framing else {})
    except FramingError as error:
        body.close()
        raise Refused("IncompleteBody", f"The request body is not aws-chunked: {error}") from error
    except BaseException:
        body.close()
        raise
    return body


def _length(received: web.BaseRequest, *, framed: bool, is_object: bool) -> int:
    """How many bytes are to come, without framing."""
    headers = received.headers
    if framed:
        text = headers.get("x-amz-decoded-content-length")
    elif "Transfer-Encoding" in headers:
        raise Refused("NotImplemented", more={"Header": "Transfer-Encoding"})
    else:
        text = headers.get("Content-Length", None if is_object else "0")
    if text is None:
        raise Refused("MissingContentLength")
    if not (text.isascii() and text.isdigit()):
        raise Refused("InvalidRequest", f"not a length: {text[:40]!r}")
    if int(text) > _MAX_BYTES:
        more = {"ProposedSize": text, "MaxSizeAllowed": str(_MAX_BYTES)}
        raise Refused("EntityTooLarge", more=more)
    return int(text)
