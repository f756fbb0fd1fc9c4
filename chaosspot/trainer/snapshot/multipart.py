"""A large value sent to S3 in parts, taken up where an earlier attempt ended."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from hashlib import md5
from typing import Any

from botocore.exceptions import ClientError

from chaosspot import probe

__all__ = ["MultipartUpload", "crc32_text"]


def crc32_text(data: bytes | memoryview) -> str:
    """The sum as S3 writes it: base64 of four bytes, the highest first."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


class MultipartUpload:
    """``data`` to one key, in parts of ``part_bytes`` (5 MiB or more, but for the last)."""

    def __init__(
        self, s3: Any, where: Mapping[str, str], data: memoryview, part_bytes: int
    ) -> None:
        self._s3 = s3
        self._where = where
        self._parts = [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)]
        self._sums = [crc32_text(part) for part in self._parts]

    @property
    def sum(self) -> str:
        """What the store is to say of the whole: the sum of the parts' sums."""
        return crc32_text(b"".join(base64.b64decode(text) for text in self._sums))

    def send(self) -> None:
        """Send what is missing and complete it.

        An upload that is gone when it is to be completed may have been completed before, by a
        request whose answer was lost: the object itself tells.
        """
        upload, there = self._begun() or (self._create(), {})
        listed = []
        for number, (part, part_sum) in enumerate(zip(self._parts, self._sums, strict=True), 1):
            found = there.get(number)
            if found is not None and _holds(found, part, part_sum):
                tag = found["ETag"]
            else:
                probe.point("upload.before-part")
                tag = self._s3.upload_part(
                    **self._where,
                    UploadId=upload,
                    PartNumber=number,
                    Body=bytes(part),
                    ChecksumCRC32=part_sum,
                )["ETag"]
            listed.append({"PartNumber": number, "ETag": tag, "ChecksumCRC32": part_sum})
        probe.point("upload.before-complete")
        try:
            self._s3.complete_multipart_upload(
                **self._where, UploadId=upload, MultipartUpload={"Parts": listed}
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchUpload":
                raise

    def _create(self) -> str:
        created = self._s3.create_multipart_upload(**self._where, ChecksumAlgorithm="CRC32")
        upload: str = created["UploadId"]
        return upload

    def _begun(self) -> tuple[str, dict[int, dict[str, Any]]] | None:
        """An upload of this key that was not completed, and its parts by number."""
        bucket, key = self._where["Bucket"], self._where["Key"]
        uploads = self._pages("list_multipart_uploads", "Uploads", Bucket=bucket, Prefix=key)
        for found in uploads:
            if found["Key"] == key:
                upload = found["UploadId"]
                parts = self._pages("list_parts", "Parts", **self._where, UploadId=upload)
                return upload, {part["PartNumber"]: part for part in parts}
        return None

    def _pages(self, operation: str, part: str, **where: str) -> Iterator[dict[str, Any]]:
        for page in self._s3.get_paginator(operation).paginate(**where):
            yield from page.get(part, ())


def _holds(found: Mapping[str, Any], part: memoryview, part_sum: str) -> bool:
    """Whether a part that the store lists is this one; by its tag where no sum is told."""
    told = found.get("ChecksumCRC32")
    if told is None:
        told, part_sum = found["ETag"], f'"{md5(part, usedforsecurity=False).hexdigest()}"'
    return bool(found["Size"] == len(part) and told == part_sum)
