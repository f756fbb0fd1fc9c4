"""aws-chunked: every way to cut it, and what is no such body."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import Connection, Store, head

from chaosspot.services.s3.chunked import AwsChunked, FramingError

BODY = b"0;chunk\r\n\r\nx-amz-checksum-crc32:AAAA\r\n" + bytes(range(20))  # looks like framing
CRC32 = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
SIGNATURE = ";chunk-signature=" + "ab" * 32


def framed(body: bytes, *sizes: int, signed: bool = False, trailers: str = "") -> bytes:
    """As clients write it by hand; what sizes leave over is the last chunk."""
    signature = SIGNATURE if signed else ""
    found = b""
    for size in (*sizes, len(body) - sum(sizes)):
        piece, body = body[:size], body[size:]
        found += f"{size:x}{signature}\r\n".encode() + piece + b"\r\n"
    return found + f"0{signature}\r\n{trailers}\r\n".encode()


PLAIN = framed(BODY, 7)
WITH_TRAILER = framed(BODY, 7, 1, trailers=f"x-amz-checksum-crc32:{CRC32}\r\n")
FORMS = {
    "unsigned": PLAIN,
    "unsigned with trailer": WITH_TRAILER,
    "signed": framed(BODY, 16, signed=True),
    "signed with trailer": framed(
        BODY,
        16,
        signed=True,
        trailers=f"x-amz-checksum-crc32:{CRC32}\r\nx-amz-trailer-signature:{'cd' * 32}\r\n",
    ),
}


def decoded(*pieces: bytes) -> tuple[bytes, AwsChunked]:
    framing = AwsChunked()
    return b"".join(framing.feed(piece) for piece in pieces), framing


@pytest.mark.parametrize("form", FORMS)
def test_cut_at_every_byte(form: str) -> None:
    data = FORMS[form]
    for at in range(len(data) + 1):
        body, framing = decoded(data[:at], data[at:])
        assert (body, framing.done) == (BODY, True), at
        assert framing.trailers.get("x-amz-checksum-crc32") == (
            CRC32 if "trailer" in form else None
        )
    body, framing = decoded(*(data[at : at + 1] for at in range(len(data))))
    assert (body, framing.done) == (BODY, True)


@pytest.mark.parametrize("form", FORMS)
def test_the_end_is_known(form: str) -> None:
    data = FORMS[form]
    for at in range(len(data)):
        assert not decoded(data[:at])[1].done


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=6), st.data())
def test_whatever_is_sent_however_it_is_cut(
    body: bytes, sizes: list[int], data: st.DataObject
) -> None:
    while sum(sizes) >= len(body) and sizes:
        sizes.pop()
    sent = framed(body, *sizes) if body else b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=5)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    got, framing = decoded(*pieces)
    assert (got, framing.done) == (body, True)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"hello\r\n", "not the size of a chunk: b'hello'"),
        (b"-1\r\n", "not the size"),
        (b"0x5\r\n", "not the size"),
        (b"\r\n", "not the size"),
        (b"1" * 17 + b"\r\n", "not the size"),
        (b"5\nhello", "does not end with CR LF"),
        (b"2\r\nhello\r\n", "longer than its size: b'llo'"),
        (b"0\r\nnothing\r\n", "not a trailer, or one too many: b'nothing'"),
        (b"0\r\n:x\r\n", "not a trailer"),
        (b"0\r\n\r\nmore", "bytes after the last chunk"),
        (b"5" + b";" * 5000, "a line without end"),
        (b"0\r\na:b\r\nA:c\r\n", "one too many: b'A:c'"),
        (b"0\r\n" + b"".join(b"a%d:b\r\n" % n for n in range(9)), "one too many: b'a8:b'"),
    ],
)
def test_what_is_no_such_body(sent: bytes, message: str) -> None:
    with pytest.raises(FramingError, match=message):
        decoded(sent)
    with pytest.raises(FramingError, match=message):
        decoded(*(sent[at : at + 1] for at in range(len(sent))))


# --- on the wire --------------------------------------------------------------------------------


def headers_of(form: str, data: bytes) -> dict[str, object]:
    kind = (
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" if "un" not in form else "STREAMING-UNSIGNED-PAYLOAD"
    )
    headers: dict[str, object] = {
        "Content-Length": len(data),
        "Content-Encoding": "gzip,aws-chunked",
        "x-amz-content-sha256": kind + ("-TRAILER" if "trailer" in form or "un" in form else ""),
        "x-amz-decoded-content-length": len(BODY),
    }
    if "trailer" in form:
        headers |= {
            "x-amz-trailer": "x-amz-checksum-crc32",
            "x-amz-sdk-checksum-algorithm": "CRC32",
        }
    return headers


@pytest.mark.parametrize("form", FORMS)
def test_an_object_is_stored_without_its_framing(store: Store, client: object, form: str) -> None:
    data = FORMS[form]
    with Connection(store) as connection:
        connection.send(head("PUT", "/chaosspot/k", headers_of(form, data)) + data)
        assert connection.answer().status == 200
        stored = connection.ask("GET", "/chaosspot/k", x_amz_checksum_mode="ENABLED")
    assert stored.body == store.read("k") == BODY
    assert stored.headers["content-encoding"] == "gzip"
    assert stored.headers.get("x-amz-checksum-crc32") == (CRC32 if "trailer" in form else None)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "transfer-encoding"])
def test_cut_at_every_byte_on_the_wire(store: Store, client: object, chunked: bool) -> None:
    form = "unsigned with trailer"
    data = FORMS[form]
    upload = client.create_multipart_upload(Bucket=store.bucket, Key="m")["UploadId"]  # type: ignore[attr-defined]
    target = f"/chaosspot/m?partNumber=1&uploadId={upload}" if chunked else "/chaosspot/k"
    headers = headers_of(form, data)
    if chunked:
        del headers["Content-Length"]
        headers["Transfer-Encoding"] = "chunked"

    def on_the_wire(piece: bytes) -> bytes:
        return f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if chunked and piece else piece

    with Connection(store) as connection:
        for at in range(len(data) + 1):
            connection.send(head("PUT", target, headers) + on_the_wire(data[:at]))
            connection.send(on_the_wire(data[at:]) + (b"0\r\n\r\n" if chunked else b""))
            answer = connection.answer()
            assert answer.status == 200, (at, answer.body)
            assert answer.headers["x-amz-checksum-crc32"] == CRC32
    if chunked:
        (open_upload,) = store.run(store.service.reader.uploads())
        assert open_upload.parts_bytes == {1: len(BODY)}
    else:
        assert store.read("k") == BODY


@pytest.mark.parametrize(
    ("changed", "data", "expected"),
    [
        ({"x-amz-decoded-content-length": len(BODY) + 1}, WITH_TRAILER, "IncompleteBody"),
        ({"x-amz-decoded-content-length": len(BODY) - 1}, WITH_TRAILER, "IncompleteBody"),
        ({}, BODY, "IncompleteBody"),
        ({}, WITH_TRAILER[:-2], "IncompleteBody"),
        ({}, PLAIN, "MalformedTrailerError"),
        ({"x-amz-trailer": "x-amz-checksum-sha1"}, WITH_TRAILER, "MalformedTrailerError"),
        ({"x-amz-trailer": "x-amz-meta-a"}, PLAIN, "InvalidRequest"),
        ({}, framed(BODY, 7, trailers="x-amz-checksum-crc32:AAAAAA==\r\n"), "BadDigest"),
        ({}, framed(BODY, 7, trailers="x-amz-checksum-crc32:AAAA\r\n"), "InvalidRequest"),
        ({"x-amz-checksum-sha1": "AAAA"}, WITH_TRAILER, "InvalidRequest"),
    ],
)  # fmt: skip
def test_a_bad_one_is_refused_and_nothing_is_stored(
    store: Store, changed: dict[str, object], data: bytes, expected: str
) -> None:
    headers = headers_of("unsigned with trailer", data) | changed
    with Connection(store) as connection:
        connection.send(head("PUT", "/chaosspot/k", headers) + data)
        answer = connection.answer()
    assert (answer.status, answer.code) == (400, expected)
    assert store.keys() == []
