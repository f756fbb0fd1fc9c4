"""Where a job keeps what outlives its nodes: a directory, or a place in an object store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ObjectPlace", "place"]

_SCHEME = "s3://"
_BUCKET = re.compile(r"(?!\d+(\.\d+){3}$)[a-z0-9]([a-z0-9-]|\.(?!\.)){1,61}[a-z0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectPlace:
    """A bucket, and what its keys begin with: nothing, or a text that ends with a slash."""

    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.prefix}"


def place(text: str) -> Path | ObjectPlace:
    """``s3://BUCKET/PREFIX`` or the path of a directory.

    Raises:
        ValueError: no bucket can have that name.
    """
    if not text.startswith(_SCHEME):
        return Path(text)
    bucket, _, prefix = text.removeprefix(_SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"no bucket can have the name {bucket!r}, in {text!r}")
    prefix = prefix.strip("/")
    return ObjectPlace(bucket=bucket, prefix=f"{prefix}/" if prefix else "")
