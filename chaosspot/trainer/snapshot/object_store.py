"""An object store that speaks S3 as what outlives nodes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from chaosspot.trainer.place import ObjectPlace
from chaosspot.trainer.snapshot.multipart import MultipartUpload, crc32_text

__all__ = ["LIMITS", "ObjectStore"]

LIMITS = Config(
    connect_timeout=2.0,
    read_timeout=10.0,
    retries={"mode": "standard", "total_max_attempts": 4},  # with jitter between them
    tcp_keepalive=True,
)
"""No request outlasts 50 s: what is under way is soon outdated by the next snapshot."""

_PAUSES_S = (0.1, 0.2, 0.4)  # after a body was cut, which the client itself does not repeat
_MISSING = {"404", "NoSuchKey", "NotFound"}


class ObjectStore:
    """A :class:`~chaosspot.trainer.snapshot.store.Store` under a prefix of a bucket.

    Large values are sent in parts of ``part_bytes``; an upload that was cut off, by this node's
    death or another's, is taken up where it ended. Endpoint, region and credentials are the
    environment's, as for any client of S3.
    """

    def __init__(
        self, place: ObjectPlace, *, part_bytes: int = 8 << 20, client: Any = None
    ) -> None:
        self._bucket, self._prefix = place.bucket, place.prefix
        self._part_bytes = part_bytes
        self._s3 = client or boto3.session.Session().client("s3", config=LIMITS)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        data = memoryview(value).cast("B")
        with _as_os_errors(key):
            if len(data) > self._part_bytes:
                self._upload(key, data).send()
            else:
                self._s3.put_object(
                    **self._where(key), Body=bytes(data), ChecksumCRC32=crc32_text(data)
                )

    def verify(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """By the size and sum that the store tells; one that keeps no sums is read instead."""
        data = memoryview(value).cast("B")
        with _as_os_errors(key):
            head = self._s3.head_object(**self._where(key), ChecksumMode="ENABLED")
        if head["ContentLength"] != len(data):
            raise OSError(f"{key}: the store has {head['ContentLength']} of {len(data)} bytes")
        whole = crc32_text(data)
        if (told := head.get("ChecksumCRC32")) is None:
            told, sent = crc32_text(self.get(key)), whole
        elif "-" in head["ETag"] and head.get("ChecksumType") != "FULL_OBJECT":
            told, sent = told.partition("-")[0], self._upload(key, data).sum
        else:
            sent = whole
        if told != sent:
            raise OSError(f"{key}: the store has sum {told}, sent was {sent}")

    def get(self, key: str) -> bytes:
        """The whole value; a body that is cut is taken up where it ended."""
        where = self._where(key)
        with _as_os_errors(key):
            answer = self._s3.get_object(**where, ChecksumMode="ENABLED")
            if not {"ContentLength", "ETag"} <= answer.keys():
                raise OSError(f"{key}: the head of the answer was cut")
            size, tag = answer["ContentLength"], answer["ETag"]
            value = bytearray()
            for pause_s in (*_PAUSES_S, None):
                try:
                    for chunk in answer["Body"].iter_chunks(1 << 20):
                        value += chunk
                    return bytes(value)
                except (BotoCoreError, HTTPError, OSError):
                    if pause_s is None or len(value) >= size:  # the latter: a wrong sum
                        raise
                time.sleep(random.uniform(0.0, pause_s))
                answer = self._s3.get_object(**where, Range=f"bytes={len(value)}-", IfMatch=tag)
        raise AssertionError("the last attempt returns or raises")

    def keys(self) -> list[str]:
        with _as_os_errors("list"):
            pages = self._pages("list_objects_v2", "Contents")
            return sorted(found["Key"].removeprefix(self._prefix) for found in pages)

    def delete(self, key: str) -> None:
        with _as_os_errors(key):
            self._s3.delete_object(**self._where(key))

    def unfinished(self) -> list[str]:
        with _as_os_errors("list uploads"):
            pages = self._pages("list_multipart_uploads", "Uploads")
            return sorted({found["Key"].removeprefix(self._prefix) for found in pages})

    def discard(self, key: str) -> None:
        where = self._where(key)
        with _as_os_errors(key):
            for found in list(self._pages("list_multipart_uploads", "Uploads")):
                if found["Key"] == where["Key"]:
                    self._s3.abort_multipart_upload(**where, UploadId=found["UploadId"])

    def _upload(self, key: str, data: memoryview) -> MultipartUpload:
        return MultipartUpload(self._s3, self._where(key), data, self._part_bytes)

    def _where(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{key}"}

    def _pages(self, operation: str, part: str) -> Iterator[dict[str, Any]]:
        pages = self._s3.get_paginator(operation).paginate(Bucket=self._bucket, Prefix=self._prefix)
        for page in pages:
            yield from page.get(part, ())


@contextmanager
def _as_os_errors(what: str) -> Iterator[None]:
    """What the client raises, as the errors that a store may raise."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind = FileNotFoundError if code in _MISSING else OSError
        raise kind(f"{what}: {error}") from error
    except (BotoCoreError, HTTPError) as error:
        raise OSError(f"{what}: {error}") from error
