"""Checksums of objects that came in parts, as S3 tells them: the sum of the parts' sums, and after
a dash how many parts there were.

moto leaves the dash out where an object's headers are asked for, and tells neither sum nor type
where the parts are put together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from chaosspot.services.s3.sums import ALGORITHMS, PREFIX

__all__ = ["completed", "with_parts"]

_TAG = re.compile(r"[0-9a-f]{32}-(\d+)")
_TYPE = PREFIX + "type"
_END = b"</CompleteMultipartUploadResult>"


def with_parts(headers: MutableMapping[str, str]) -> None:
    """Put right what is said of the sum of an object that came in parts."""
    tag = _TAG.fullmatch(headers.get("ETag", "").strip('"'))
    if tag is None or headers.get(_TYPE) == "FULL_OBJECT":
        return
    for name in (PREFIX + algorithm for algorithm in ALGORITHMS):
        if name in headers:
            headers[name] = f"{headers[name].partition('-')[0]}-{tag[1]}"
            headers[_TYPE] = "COMPOSITE"


def completed(page: bytes, headers: Mapping[str, str]) -> bytes:
    """The answer to who completes an upload, with the sum that the object's headers tell.

    As it is if they are of another object, which has taken its place meanwhile.
    """
    made = _TAG.search(page.decode("utf-8", "replace"))
    if made is None or made[0] != headers.get("ETag", "").strip('"'):
        return page
    told = {
        f"Checksum{algorithm.upper()}": headers[PREFIX + algorithm]
        for algorithm in ALGORITHMS
        if PREFIX + algorithm in headers
    }
    if told and _TYPE in headers:
        told["ChecksumType"] = headers[_TYPE]
    more = "".join(f"<{name}>{value}</{name}>" for name, value in told.items())
    return page.replace(_END, more.encode() + _END)
