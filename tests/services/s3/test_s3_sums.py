"""Checksums: right, wrong and malformed, of each algorithm, in a header or a trailer."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from storing import Connection, Store, code_of

from chaosspot.services.s3.crc64 import crc64nvme
from chaosspot.services.s3.errors import Refused
from chaosspot.services.s3.sums import ALGORITHMS, Sums, expected, plausible

CHECK = b"123456789"  # the text whose sums catalogues of algorithms give
KNOWN = {
    "crc32": "cbf43926",
    "crc32c": "e3069283",
    "crc64nvme": "ae8b14860a799888",
    "md5": hashlib.md5(CHECK).hexdigest(),
    "sha1": hashlib.sha1(CHECK).hexdigest(),
    "sha256": hashlib.sha256(CHECK).hexdigest(),
    "sha512": hashlib.sha512(CHECK).hexdigest(),
}


def text(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def wrong(value: str) -> str:
    raw = bytearray(base64.b64decode(value))
    raw[-1] ^= 1
    return base64.b64encode(raw).decode()


def bitwise_crc64(data: bytes) -> int:
    """As the algorithm is defined, one bit after the other."""
    value = (1 << 64) - 1
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x9A6C9329AC4BC9B5 if value & 1 else 0)
    return value ^ (1 << 64) - 1


def verified(headers: dict[str, str], *pieces: bytes, trailers: Any = ()) -> tuple[str, str]:
    sums = Sums(expected(CIMultiDict(headers), of_body=True))
    for piece in pieces:
        sums.update(piece)
    return sums.verify(dict(trailers))


def test_every_algorithm_is_here() -> None:
    assert set(KNOWN) == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", KNOWN)
def test_right_and_wrong(algorithm: str) -> None:
    name, right = f"x-amz-checksum-{algorithm}", text(KNOWN[algorithm])
    trailing = {"x-amz-trailer": name}
    for pieces in ([CHECK], [CHECK[:4], CHECK[4:]]):
        assert verified({name: right}, *pieces) == (algorithm, right)
        assert verified(trailing, *pieces, trailers={name: right}) == (algorithm, right)
    message = f"The {algorithm.upper()} you specified did not match the calculated checksum."
    for headers, trailers in (({name: wrong(right)}, {}), (trailing, {name: wrong(right)})):
        with pytest.raises(Refused) as caught:
            verified(headers, CHECK, trailers=trailers)
        assert (caught.value.code, caught.value.message) == ("BadDigest", message)


@pytest.mark.parametrize("algorithm", KNOWN)
@pytest.mark.parametrize("value", ["", "AAAA", "no base64!", "AAAAAAA=AAAA"])
def test_malformed(algorithm: str, value: str) -> None:
    name = f"x-amz-checksum-{algorithm}"
    with pytest.raises(Refused) as caught:
        verified({name: value}, CHECK)
    assert caught.value.code == "InvalidRequest"
    assert caught.value.message == f"Value for {name} header is invalid."
    with pytest.raises(Refused) as caught:
        verified({"x-amz-trailer": name}, CHECK, trailers={name: value})
    assert caught.value.message == f"Value for {name} trailing header is invalid."


def test_md5_and_the_signed_sum() -> None:
    md5 = text(KNOWN["md5"])
    assert verified({"content-md5": md5, "X-Amz-Content-Sha256": KNOWN["sha256"]}, CHECK) == (
        "",
        "",
    )
    for headers, code in (
        ({"Content-MD5": wrong(md5)}, "BadDigest"),
        ({"Content-MD5": "AAAA"}, "InvalidDigest"),
        ({"Content-MD5": "no base64!"}, "InvalidDigest"),
        ({"x-amz-content-sha256": "0" * 64}, "XAmzContentSHA256Mismatch"),
    ):
        with pytest.raises(Refused) as caught:
            verified(headers, CHECK)
        assert (caught.value.code, caught.value.status) == (code, 400)
    assert verified({"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, CHECK) == ("", "")


def test_one_sum_at_a_time_and_only_known_ones() -> None:
    two = {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-crc32c": "AAAAAA=="}
    header_and_trailer = {
        "x-amz-checksum-crc32": "AAAAAA==",
        "x-amz-trailer": "x-amz-checksum-sha1",
    }
    for headers in (two, header_and_trailer):
        with pytest.raises(Refused, match="InvalidRequest"):
            verified(headers, CHECK)
    for headers in (
        {"x-amz-checksum-xxhash64": "AAAA"},
        {"x-amz-trailer": "x-amz-checksum-xxhash3"},
    ):
        with pytest.raises(Refused, match="NotImplemented"):
            verified(headers, CHECK)
    others = {"x-amz-checksum-algorithm": "SHA1", "x-amz-checksum-mode": "ENABLED"}
    assert verified({**others, "x-amz-checksum-type": "COMPOSITE"}, CHECK) == ("", "")


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_crc64_of_any_length_in_pieces(data: bytes, at: int) -> None:
    assert crc64nvme(data) == bitwise_crc64(data) == crc64nvme(data[at:], crc64nvme(data[:at]))


def test_crc64_of_many_lanes() -> None:
    data = hashlib.shake_128(b"lanes").digest(300_017)
    assert crc64nvme(data) == bitwise_crc64(data)
    assert crc64nvme(data * 8) == crc64nvme(data * 7, crc64nvme(data))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ETag", "x", True),
        ("x-amz-checksum-type", "COMPOSITE", True),
        ("x-amz-checksum-crc32", "AAAAAA==", True),
        ("X-Amz-Checksum-CRC32", "AAAAAA==-3", True),
        ("x-amz-checksum-crc64nvme", "AAAAAA==", False),  # a CRC32, for want of another
        ("x-amz-checksum-xxhash3", "AAAAAA==", False),
    ],
)
def test_sums_that_moto_makes_up_are_not_told(name: str, value: str, told: bool) -> None:
    assert plausible(name, value) is told


# --- on the wire --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", KNOWN)
def test_a_wrong_sum_is_refused_and_the_old_object_stays(store: Store, algorithm: str) -> None:
    name, right = f"x-amz-checksum-{algorithm}", text(KNOWN[algorithm])
    with Connection(store) as connection:
        assert connection.ask("PUT", "/chaosspot/k", CHECK, **{name: right}).status == 200
        stored = connection.ask("GET", "/chaosspot/k", x_amz_checksum_mode="ENABLED")
        assert (stored.body, stored.headers[name]) == (CHECK, right)
        assert name not in connection.ask("GET", "/chaosspot/k").headers
        refused = connection.ask("PUT", "/chaosspot/k", b"other", **{name: right})
        assert (refused.status, refused.code) == (400, "BadDigest")
    assert store.read("k") == CHECK


def _put(client: Any, store: Store, **sums: str) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=CHECK, **sums)


def _part(client: Any, store: Store, **sums: str) -> None:
    upload = client.create_multipart_upload(Bucket=store.bucket, Key="k")["UploadId"]
    client.upload_part(
        Bucket=store.bucket, Key="k", UploadId=upload, PartNumber=1, Body=CHECK, **sums
    )


@pytest.mark.parametrize("act", [_put, _part])
@pytest.mark.parametrize(
    ("sums", "expected_code"),
    [
        ({"ContentMD5": text("00" * 16)}, "BadDigest"),
        ({"ContentMD5": "AAAA"}, "InvalidDigest"),
        ({"ChecksumCRC32": "AAAAAA=="}, "BadDigest"),
        ({"ChecksumSHA256": text("00" * 32)}, "BadDigest"),
        ({"ChecksumSHA256": "AAAA"}, "InvalidRequest"),
    ],
)
def test_botocore_reads_the_error(
    store: Store,
    client: Any,
    act: Callable[..., None],
    sums: dict[str, str],
    expected_code: str,
) -> None:
    act(client, store, ContentMD5=text(KNOWN["md5"]))
    act(client, store, ChecksumCRC32=text(f"{zlib.crc32(CHECK):08x}"))
    with pytest.raises(ClientError) as caught:
        act(client, store, **sums)
    assert code_of(caught.value) == (400, expected_code)
    assert caught.value.response["Error"]["Resource"] == "/chaosspot/k"
    assert len(caught.value.response["ResponseMetadata"]["RequestId"]) == 16
