"""Checksums of objects that came in parts, as a client of S3 expects them."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import Any

import pytest
from multidict import CIMultiDict
from storing import Connection, Store

from chaosspot.services.s3.composite import completed, with_parts

PARTS = (b"a" * (5 << 20), b"b" * (5 << 20), b"end")
TAG = "0123456789abcdef0123456789abcdef"


def crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


SUMS = {"CRC32": crc32, "SHA1": sha1, "SHA256": sha256}


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def upload(client: Any, store: Store, algorithm: str, **more: str) -> dict[str, Any]:
    """Upload an object in parts; what completing it answers."""
    of_upload = {"Bucket": store.bucket, "Key": "k"}
    begun = client.create_multipart_upload(**of_upload, ChecksumAlgorithm=algorithm, **more)
    of_upload["UploadId"] = begun["UploadId"]
    parts = []
    for number, data in enumerate(PARTS, 1):
        done = client.upload_part(
            **of_upload, PartNumber=number, Body=data, ChecksumAlgorithm=algorithm
        )
        name = f"Checksum{algorithm}"
        parts.append({"PartNumber": number, "ETag": done["ETag"], name: done[name]})
    answer: dict[str, Any] = client.complete_multipart_upload(
        **of_upload, MultipartUpload={"Parts": parts}
    )
    return answer


@pytest.mark.parametrize("algorithm", SUMS)
@pytest.mark.parametrize("more", [{}, {"ChecksumType": "COMPOSITE"}], ids=["usual", "asked-for"])
def test_the_sum_of_the_parts_sums_has_their_number(
    store: Store, client: Any, algorithm: str, more: dict[str, str]
) -> None:
    of, name = SUMS[algorithm], f"Checksum{algorithm}"
    wanted = f"{text(of(b''.join(of(part) for part in PARTS)))}-3"
    answer = upload(client, store, algorithm, **more)
    assert (answer[name], answer["ChecksumType"]) == (wanted, "COMPOSITE")
    asked = {"Bucket": store.bucket, "Key": "k", "ChecksumMode": "ENABLED"}
    told = client.head_object(**asked)
    assert (told[name], told["ChecksumType"]) == (wanted, "COMPOSITE")
    got = client.get_object(**asked)
    assert (got[name], got["ChecksumType"]) == (wanted, "COMPOSITE")
    assert got["Body"].read() == b"".join(PARTS), "boto3 validates no sum of sums"


def test_the_sum_of_a_whole_object_has_no_number(store: Store, client: Any) -> None:
    wanted = text(crc32(b"".join(PARTS)))
    answer = upload(client, store, "CRC32", ChecksumType="FULL_OBJECT")
    assert (answer["ChecksumCRC32"], answer["ChecksumType"]) == (wanted, "FULL_OBJECT")
    asked = {"Bucket": store.bucket, "Key": "k", "ChecksumMode": "ENABLED"}
    assert client.head_object(**asked)["ChecksumCRC32"] == wanted
    assert client.get_object(**asked)["Body"].read() == b"".join(PARTS)
    client.put_object(Bucket=store.bucket, Key="k", Body=b"one", ChecksumAlgorithm="CRC32")
    assert client.head_object(**asked)["ChecksumCRC32"] == text(crc32(b"one"))


def test_no_sum_is_told_where_there_is_none_or_it_is_not_asked_for(
    store: Store, client: Any
) -> None:
    of_upload = {"Bucket": store.bucket, "Key": "k"}
    of_upload["UploadId"] = client.create_multipart_upload(**of_upload)["UploadId"]
    target = f"/{store.bucket}/k?partNumber=1&uploadId={of_upload['UploadId']}"
    with Connection(store) as raw:
        tag = raw.ask("PUT", target, b"x").headers["etag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    answer = client.complete_multipart_upload(**of_upload, MultipartUpload=parts)
    assert not [name for name in answer if name.startswith("Checksum")]
    upload(client, store, "SHA256")
    told = client.head_object(Bucket=store.bucket, Key="k")
    assert not [name for name in told if name.startswith("ChecksumS")]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"ETag": f'"{TAG}-12"', "x-amz-checksum-crc32": "AAAAAA=="}, "AAAAAA==-12"),
        ({"ETag": f'"{TAG}-12"', "x-amz-checksum-crc32": "AAAAAA==-12"}, "AAAAAA==-12"),
        ({"ETag": f'"{TAG}"', "x-amz-checksum-crc32": "AAAAAA=="}, "AAAAAA=="),
        ({"x-amz-checksum-crc32": "AAAAAA=="}, "AAAAAA=="),
        ({"ETag": f'"{TAG}-12"'}, None),
    ],
)
def test_headers(given: dict[str, str], wanted: str | None) -> None:
    headers = CIMultiDict(given)
    with_parts(headers)
    assert headers.get("x-amz-checksum-crc32") == wanted
    assert headers.get("x-amz-checksum-type") == ("COMPOSITE" if "-12" in (wanted or "") else None)


def test_another_object_in_its_place_does_not_tell_its_sum() -> None:
    page = f'<ETag>"{TAG}-2"</ETag></CompleteMultipartUploadResult>'.encode()
    sums = {"x-amz-checksum-crc32": "AAAAAA==-2", "x-amz-checksum-type": "COMPOSITE"}
    assert completed(page, {"ETag": f'"{TAG}-3"', **sums}) == page
    told = completed(page, {"ETag": f'"{TAG}-2"', **sums})
    assert b"<ChecksumCRC32>AAAAAA==-2</ChecksumCRC32>" in told
    assert told.endswith(b"<ChecksumType>COMPOSITE</ChecksumType></CompleteMultipartUploadResult>")
    assert completed(page, {"ETag": f'"{TAG}-2"'}) == page
