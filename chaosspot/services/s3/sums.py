"""Checksums of bodies, taken as the bytes pass, and compared with what the client says."""

from __future__ import annotations

import binascii
import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Protocol

import crc32c

from chaosspot.services.s3.crc64 import crc64nvme
from chaosspot.services.s3.errors import Refused

__all__ = ["ALGORITHMS", "PREFIX", "Expected", "Sums", "expected", "plausible"]

PREFIX = "x-amz-checksum-"
_NOT_SUMS = ("algorithm", "type", "mode")  # other headers with that prefix


class _Sum(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc:
    def __init__(self, function: Callable[[bytes, int], int], size_bytes: int) -> None:
        self._function = function
        self._size_bytes = size_bytes
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size_bytes, "big")


ALGORITHMS: dict[str, tuple[int, Callable[[], _Sum]]] = {  # by name: bytes, and a new one
    "crc32": (4, lambda: _Crc(zlib.crc32, 4)),
    "crc32c": (4, lambda: _Crc(crc32c.crc32c, 4)),
    "crc64nvme": (8, lambda: _Crc(crc64nvme, 8)),
    "md5": (16, lambda: hashlib.md5(usedforsecurity=False)),
    "sha1": (20, lambda: hashlib.sha1(usedforsecurity=False)),
    "sha256": (32, hashlib.sha256),
    "sha512": (64, hashlib.sha512),
}


class Expected:
    """What the sums of a body are said to be; ``trailer`` names one that comes after it."""

    def __init__(self) -> None:
        self.md5: bytes | None = None
        self.sha256: str = ""  # that was signed, in hexadecimal
        self.algorithm: str = ""
        self.value: str = ""
        self.trailer = False


def expected(headers: Mapping[str, str], *, of_body: bool) -> Expected:
    """Read them from the headers; not ``of_body``: checksum headers are about something else.

    Raises:
        Refused: they are malformed, or more than one.
    """
    found = Expected()
    if "Content-MD5" in headers:
        found.md5 = _decoded(headers["Content-MD5"], 16)
        if found.md5 is None:
            raise Refused("InvalidDigest")
    signed = headers.get("x-amz-content-sha256", "").lower()
    if len(signed) == 64 and not signed.strip("0123456789abcdef"):
        found.sha256 = signed
    if not of_body:
        return found
    names = {name.lower() for name in headers if name.lower().startswith(PREFIX)}
    names -= {PREFIX + name for name in _NOT_SUMS}
    trailers = {n.strip().lower() for n in headers.get("x-amz-trailer", "").split(",")} - {""}
    if len(names | trailers) > 1:
        raise Refused(
            "InvalidRequest",
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
        )
    for name in names | trailers:
        found.algorithm = name.removeprefix(PREFIX)
        found.trailer = name in trailers
        if not name.startswith(PREFIX):
            raise Refused(
                "InvalidRequest", "The value specified in the x-amz-trailer header is not supported"
            )
        if found.algorithm not in ALGORITHMS:  # S3 knows xxHash, too: better no than unverified
            raise Refused("NotImplemented", more={"Header": name})
        if not found.trailer:
            found.value = _checked(found.algorithm, headers[name], where="header")
    return found


class Sums:
    """The sums that are expected, and SHA-256, of the bytes that :meth:`update` gets."""

    def __init__(self, wanted: Expected) -> None:
        self._wanted = wanted
        names = {"sha256", wanted.algorithm, "md5" if wanted.md5 is not None else ""} - {""}
        self._sums: dict[str, _Sum] = {name: ALGORITHMS[name][1]() for name in names}

    def update(self, data: bytes) -> None:
        for each in self._sums.values():
            each.update(data)

    def sha256(self) -> str:
        """In hexadecimal."""
        return self._sums["sha256"].digest().hex()

    def verify(self, trailers: Mapping[str, str]) -> tuple[str, str]:
        """The algorithm and the value of the body's checksum, both empty without one.

        Raises:
            Refused: a sum is not what was said.
        """
        wanted = self._wanted
        if wanted.md5 is not None and (got := self._sums["md5"].digest()) != wanted.md5:
            more = {"ExpectedDigest": _text(wanted.md5), "CalculatedDigest": _text(got)}
            raise Refused("BadDigest", more=more)
        if wanted.sha256 and self.sha256() != wanted.sha256:
            more = {
                "ClientComputedContentSHA256": wanted.sha256,
                "S3ComputedContentSHA256": self.sha256(),
            }
            raise Refused("XAmzContentSHA256Mismatch", more=more)
        if not wanted.algorithm:
            return "", ""
        value = wanted.value
        if wanted.trailer:
            name = PREFIX + wanted.algorithm
            if name not in trailers:
                raise Refused("MalformedTrailerError")
            value = _checked(wanted.algorithm, trailers[name], where="trailing header")
        if _text(self._sums[wanted.algorithm].digest()) != value:
            name = wanted.algorithm.upper()
            raise Refused(
                "BadDigest", f"The {name} you specified did not match the calculated checksum."
            )
        return wanted.algorithm, value


def plausible(name: str, value: str) -> bool:
    """Whether a header of that name may have the value; true of headers that are no checksums.

    moto takes another sum where it does not know the one it was asked for.
    """
    algorithm = name.lower().removeprefix(PREFIX)
    if not name.lower().startswith(PREFIX) or algorithm in _NOT_SUMS:
        return True
    if algorithm not in ALGORITHMS:
        return False
    return _decoded(value.partition("-")[0], ALGORITHMS[algorithm][0]) is not None


def _checked(algorithm: str, value: str, *, where: str) -> str:
    raw = _decoded(value, ALGORITHMS[algorithm][0])
    if raw is None:
        raise Refused("InvalidRequest", f"Value for {PREFIX}{algorithm} {where} is invalid.")
    return _text(raw)


def _decoded(text: str, size_bytes: int) -> bytes | None:
    try:
        raw = b64decode(text, validate=True)
    except binascii.Error:
        return None
    return raw if len(raw) == size_bytes else None


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()
