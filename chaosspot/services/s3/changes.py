"""What changed in the store, told in the moment it did, whatever the client hears of it."""

from __future__ import annotations

from typing import Literal, TypeAlias
from xml.etree import ElementTree

import msgspec

__all__ = ["Change", "ObjectGone", "ObjectStored", "UploadChanged", "deleted_keys", "upload_id"]


class ObjectStored(msgspec.Struct, frozen=True, kw_only=True):
    """From ``t`` (monotonic seconds) on the store may hold these bytes under ``key``; soon it does.

    However ``node`` sent them: ``sha256``, in hexadecimal, is of the whole object.
    """

    t: float
    node: str
    key: str
    size_bytes: int
    sha256: str


class ObjectGone(msgspec.Struct, frozen=True, kw_only=True):
    """At ``t`` at the latest the store holds nothing under ``key`` any more."""

    t: float
    node: str
    key: str


class UploadChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A multipart upload began, or ended with an object or without one."""

    t: float
    node: str
    key: str
    upload: str
    state: Literal["begun", "completed", "aborted"]


Change: TypeAlias = ObjectStored | ObjectGone | UploadChanged


def upload_id(answer: bytes) -> str:
    """Of the upload that S3 says has begun."""
    return _texts(ElementTree.fromstring(answer), "UploadId")[0]


def deleted_keys(asked: bytes, answer: bytes) -> list[str]:
    """The keys that a request for several deletions has deleted: all but those of errors."""
    failed: set[str] = set()
    for element in ElementTree.fromstring(answer).iter():
        if _is(element, "Error"):
            failed.update(_texts(element, "Key"))
    return [key for key in _texts(ElementTree.fromstring(asked), "Key") if key not in failed]


def _texts(root: ElementTree.Element, name: str) -> list[str]:
    return [element.text or "" for element in root.iter() if _is(element, name)]


def _is(element: ElementTree.Element, name: str) -> bool:
    """Whether it has that name, in whatever namespace clients put it."""
    return element.tag.rpartition("}")[2] == name
