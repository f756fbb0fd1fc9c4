"""Reads the store itself, past all misbehaviour: what is there, whatever clients were told."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import msgspec

from chaosspot.services.s3.upstream import Upstream, pieces_of

__all__ = ["Reader", "StoredObject", "StoredVersion", "Upload"]

_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object as it is now."""

    key: str
    size_bytes: int
    etag: str


class StoredVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an object, or the mark that it was deleted; newest first within a key.

    ``version`` is ``"null"`` in a bucket without versions.
    """

    key: str
    version: str
    latest: bool
    deleted: bool
    size_bytes: int
    etag: str


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A multipart upload that was neither completed nor aborted; sizes of its parts by number."""

    key: str
    id: str
    parts_bytes: dict[int, int]


class Reader:
    """What one bucket holds. Every method raises OSError when the store does not answer.

    ``page_keys``: how many keys are asked for at once.
    """

    def __init__(self, upstream: Upstream, bucket: str, *, page_keys: int = 1000) -> None:
        self._upstream = upstream
        self.bucket = bucket
        self._page_keys = page_keys

    async def objects(self, prefix: str = "") -> tuple[StoredObject, ...]:
        """All objects under the prefix, by key."""
        found = []
        async for page in self._pages("list-type=2", prefix):
            found += [
                StoredObject(
                    key=_text(each, "Key"),
                    size_bytes=int(_text(each, "Size")),
                    etag=_text(each, "ETag").strip('"'),
                )
                for each in page.iter(_NAMESPACE + "Contents")
            ]
        return tuple(sorted(found, key=lambda each: each.key))

    async def read(self, key: str, version: str = "") -> bytes:
        """The bytes of an object, or of one version of it.

        Raises:
            FileNotFoundError: there is none.
        """
        query = f"?versionId={quote(version, safe='')}" if version else ""
        return await self._get(f"/{self.bucket}/{quote(key)}{query}", named=key)

    async def sha256(self, key: str) -> tuple[int, str]:
        """The size in bytes of an object and its sum, in hexadecimal, without holding it.

        Raises:
            FileNotFoundError: there is none.
        """
        size_bytes, sums = 0, hashlib.sha256()
        async for piece in self._pieces(f"/{self.bucket}/{quote(key)}", named=key):
            size_bytes += len(piece)
            sums.update(piece)
        return size_bytes, sums.hexdigest()

    async def versions(self, prefix: str = "") -> tuple[StoredVersion, ...]:
        """All versions under the prefix, with the marks of deletions."""
        found = []
        async for page in self._pages("versions", prefix):
            for each in page:
                if each.tag not in (_NAMESPACE + "Version", _NAMESPACE + "DeleteMarker"):
                    continue
                found.append(
                    StoredVersion(
                        key=_text(each, "Key"),
                        version=_text(each, "VersionId") or "null",
                        latest=_text(each, "IsLatest") == "true",
                        deleted=each.tag.endswith("DeleteMarker"),
                        size_bytes=int(_text(each, "Size") or "0"),
                        etag=_text(each, "ETag").strip('"'),
                    )
                )
        return tuple(found)

    async def uploads(self, *, parts: bool = True) -> tuple[Upload, ...]:
        """The multipart uploads that are open, with their parts or without."""
        page = await self._page("uploads")
        found = []
        for each in page.iter(_NAMESPACE + "Upload"):
            key, upload = _text(each, "Key"), _text(each, "UploadId")
            if not parts:
                found.append(Upload(key=key, id=upload, parts_bytes={}))
                continue
            path = f"/{self.bucket}/{quote(key)}?uploadId={quote(upload, safe='')}&max-parts=10000"
            try:
                listed = ElementTree.fromstring(await self._get(path, named=key))
            except FileNotFoundError:  # completed or aborted meanwhile
                continue
            sizes = {
                int(_text(part, "PartNumber")): int(_text(part, "Size"))
                for part in listed.iter(_NAMESPACE + "Part")
            }
            found.append(Upload(key=key, id=upload, parts_bytes=sizes))
        return tuple(found)

    async def _pages(self, listing: str, prefix: str) -> AsyncIterator[ElementTree.Element]:
        query = {"prefix": prefix, "max-keys": str(self._page_keys)}
        while True:
            page = await self._page(f"{listing}&{urlencode(query)}")
            yield page
            if _text(page, "IsTruncated") != "true":
                return
            if listing == "versions":
                query["key-marker"] = _text(page, "NextKeyMarker")
                query["version-id-marker"] = _text(page, "NextVersionIdMarker")
            else:
                query["continuation-token"] = _text(page, "NextContinuationToken")

    async def _page(self, query: str) -> ElementTree.Element:
        page = await self._get(f"/{self.bucket}?{query}", named=self.bucket)
        return ElementTree.fromstring(page)

    async def _get(self, target: str, *, named: str) -> bytes:
        return b"".join([piece async for piece in self._pieces(target, named=named)])

    async def _pieces(self, target: str, *, named: str) -> AsyncIterator[bytes]:
        async with self._upstream.ask("GET", target) as answer:
            if answer.status == 404:
                raise FileNotFoundError(f"no such thing in the store: {named!r}")
            if answer.status != 200:
                said = (await answer.read())[:500]
                raise OSError(f"the store answers {answer.status} for {named!r}: {said!r}")
            async for piece in pieces_of(answer):
                yield piece


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(_NAMESPACE + name) or ""
