"""The layer without misbehaviour: what passes, what is refused, and when."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from storing import Connection, Store, code_of, head

BIG = bytes(range(256)) * 1200  # more than the layer takes at once


def test_keep_alive_heads_and_ranges(store: Store) -> None:
    with Connection(store) as connection:
        put = connection.ask("PUT", "/chaosspot/k", BIG, content_type="text/plain")
        assert (put.status, put.body) == (200, b"")
        assert put.headers["server"] == "AmazonS3"
        assert len(put.headers["x-amz-request-id"]) == 16
        seen = connection.ask("HEAD", "/chaosspot/k")
        assert (seen.status, seen.headers["content-length"]) == (200, str(len(BIG)))
        assert seen.headers["content-type"] == "text/plain"
        assert seen.headers["etag"] == put.headers["etag"]
        for given, status, expected in (
            ("bytes=5-9", 206, BIG[5:10]),
            ("bytes=-7", 206, BIG[-7:]),
            (f"bytes={len(BIG) - 3}-", 206, BIG[-3:]),
            ("bytes=0-99999999", 206, BIG),
        ):
            got = connection.ask("GET", "/chaosspot/k", Range=given)
            assert (got.status, got.body) == (status, expected), given
        same = connection.ask("GET", "/chaosspot/k", If_None_Match=put.headers["etag"])
        assert (same.status, same.body) == (304, b"")
        beyond = connection.ask("GET", "/chaosspot/k", Range=f"bytes={len(BIG)}-")
        assert (beyond.status, beyond.code) == (416, "InvalidRange")
        assert connection.ask("GET", "/chaosspot/nothing").code == "NoSuchKey"
        assert connection.ask("HEAD", "/chaosspot/nothing").status == 404
        assert connection.ask("DELETE", "/chaosspot/k").status == 204
        assert connection.ask("GET", "/chaosspot/k").status == 404


@pytest.mark.parametrize(
    "key", ["a b/ü/x+y%", "a/../b", "/twice//", "a?b#c&d=e", "moto-api/x", "."]
)
def test_a_key_is_what_it_is(store: Store, client: Any, key: str) -> None:
    client.put_object(Bucket=store.bucket, Key=key, Body=b"x")
    assert store.keys() == [key]
    assert client.get_object(Bucket=store.bucket, Key=key)["Body"].read() == b"x"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_an_object_that_says_it_is_a_form(store: Store, client: Any, kind: str) -> None:
    body = b"key=other&file=x"
    client.put_object(Bucket=store.bucket, Key="k", Body=body, ContentType=kind)
    got = client.get_object(Bucket=store.bucket, Key="k")
    assert (got["Body"].read(), got["ContentType"]) == (body, kind)


def test_a_bucket_in_the_host(store: Store) -> None:
    with Connection(store) as connection:
        host = "chaosspot.localhost:9000"
        assert connection.ask("PUT", "/a/b", b"x", Host=host).status == 200
        assert connection.ask("GET", "/chaosspot/a/b").body == b"x"
        listed = connection.ask("GET", "/?list-type=2", Host=host)
        assert b"<Key>a/b</Key>" in listed.body


def test_one_interim_answer_and_only_to_who_waits_for_it(store: Store) -> None:
    expects = {"Content-Length": 5, "Expect": "100-continue"}
    with Connection(store) as connection:
        for _ in range(2):
            connection.send(head("PUT", "/chaosspot/k", expects))
            assert connection.interim() == b"HTTP/1.1 100 Continue"
            connection.send(b"hello")
            assert connection.answer().status == 200  # and not another interim one
        connection.send(head("PUT", "/chaosspot/k", {**expects, "Content-MD5": "AAAA"}))
        refused = connection.answer()
        assert (refused.status, refused.code) == (400, "InvalidDigest")
        assert refused.headers["connection"] == "close"
        assert connection.rest() == b""


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 411, "MissingContentLength"),
        ({"Transfer-Encoding": "chunked"}, 501, "NotImplemented"),
        ({"Content-Length": 6 << 30}, 400, "EntityTooLarge"),
        ({"Content-Length": 5, "Content-Encoding": "aws-chunked"}, 411, "MissingContentLength"),
        (
            {
                "Content-Length": 5,
                "Content-Encoding": "aws-chunked",
                "x-amz-decoded-content-length": "-3",
            },
            400,
            "InvalidRequest",
        ),
        (
            {"Content-Length": 5, "x-amz-trailer": "x-amz-checksum-sha1"},
            400,
            "MalformedTrailerError",
        ),
    ],
)
def test_an_object_without_a_good_length(
    store: Store, headers: dict[str, object], status: int, code: str
) -> None:
    with Connection(store) as connection:
        connection.send(head("PUT", "/chaosspot/k", headers))
        answer = connection.answer()
    assert (answer.status, answer.code) == (status, code)
    assert store.keys() == []


def test_a_put_that_is_cut_leaves_the_old_object(store: Store, client: Any) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=b"old")
    with Connection(store) as connection:
        connection.send(head("PUT", "/chaosspot/k", {"Content-Length": len(BIG)}) + BIG[:100_000])
    with Connection(store) as connection:  # the same listener goes on
        assert connection.ask("GET", "/chaosspot/k").body == b"old"
    assert store.read("k") == b"old"


def test_conditions_of_a_write(store: Store, client: Any) -> None:
    put = client.put_object(Bucket=store.bucket, Key="k", Body=b"old", IfNoneMatch="*")
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0"'}):
        with pytest.raises(ClientError) as caught:
            client.put_object(Bucket=store.bucket, Key="k", Body=b"new", **condition)
        assert code_of(caught.value) == (412, "PreconditionFailed")
    client.put_object(Bucket=store.bucket, Key="k", Body=b"new", IfMatch=put["ETag"])
    assert store.read("k") == b"new"


def test_several_keys_are_listed_copied_and_deleted(store: Store, client: Any) -> None:
    for number in range(5):
        client.put_object(Bucket=store.bucket, Key=f"a/{number}", Body=b"x" * number)
    client.copy_object(Bucket=store.bucket, Key="b", CopySource=f"{store.bucket}/a/3")
    assert store.read("b") == b"xxx"
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=store.bucket, Prefix="a/", PaginationConfig={"PageSize": 2}
    )
    keys = [each["Key"] for page in pages for each in page["Contents"]]
    assert keys == [f"a/{number}" for number in range(5)]
    doomed = {"Objects": [{"Key": key} for key in keys]}
    client.delete_objects(Bucket=store.bucket, Delete=doomed)
    assert store.keys() == ["b"]


def test_urls_that_are_signed_and_requests_that_are_not(store: Store, client: Any) -> None:
    where = {"Bucket": store.bucket, "Key": "a b"}
    put, get = (client.generate_presigned_url(act, where) for act in ("put_object", "get_object"))
    with Connection(store) as connection:
        for method, url, body in (("PUT", put, b"x"), ("GET", get, b"")):
            target = url.removeprefix(store.service.endpoint)
            assert connection.ask(method, target, body, Authorization=None).status == 200
        assert store.read("a b") == b"x"
        answer = connection.ask("GET", "/chaosspot/a%20b", Authorization=None)
        assert (answer.status, answer.code) == (403, "AccessDenied")


# --- what moto does not say as S3 does -----------------------------------------------------------


def _late_part(client: Any, bucket: str, upload: str) -> None:
    client.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=2, Body=b"late")


def _late_end(client: Any, bucket: str, upload: str) -> None:
    parts = {"Parts": [{"ETag": '"0"', "PartNumber": 1}]}
    client.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload=parts)


def _late_abort(client: Any, bucket: str, upload: str) -> None:
    client.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=upload)


def _late_list(client: Any, bucket: str, upload: str) -> None:
    client.list_parts(Bucket=bucket, Key="k", UploadId=upload)


def _late_copy(client: Any, bucket: str, upload: str) -> None:
    client.put_object(Bucket=bucket, Key="source", Body=b"x")
    client.upload_part_copy(
        Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, CopySource=f"{bucket}/source"
    )


@pytest.mark.parametrize("act", [_late_part, _late_end, _late_abort, _late_list, _late_copy])
def test_who_comes_late_to_an_upload_is_told_so(store: Store, client: Any, act: Any) -> None:
    upload = client.create_multipart_upload(Bucket=store.bucket, Key="k")["UploadId"]
    client.upload_part(Bucket=store.bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"x")
    assert store.uploads() == [upload]
    client.abort_multipart_upload(Bucket=store.bucket, Key="k", UploadId=upload)
    assert store.uploads() == []
    for gone in (upload, "never"):
        with pytest.raises(ClientError) as caught:
            act(client, store.bucket, gone)
        assert code_of(caught.value) == (404, "NoSuchUpload")
        assert caught.value.response["Error"]["UploadId"] == gone
    assert store.keys() in ([], ["source"])


def test_parts_that_do_not_fit(store: Store, client: Any) -> None:
    upload = client.create_multipart_upload(Bucket=store.bucket, Key="k")["UploadId"]
    where = {"Bucket": store.bucket, "Key": "k", "UploadId": upload}
    tags = [
        client.upload_part(**where, PartNumber=number, Body=b"small")["ETag"] for number in (1, 2)
    ]
    for numbers, etags, code in (
        ((1, 2), tags, "EntityTooSmall"),
        ((1, 3), tags, "InvalidPart"),
        ((1,), ['"0"'], "InvalidPart"),
    ):
        parts = [{"ETag": e, "PartNumber": n} for n, e in zip(numbers, etags, strict=True)]
        with pytest.raises(ClientError) as caught:
            client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
        assert code_of(caught.value) == (400, code)
    only = {"Parts": [{"ETag": tags[0], "PartNumber": 1}]}
    done = [client.complete_multipart_upload(**where, MultipartUpload=only) for _ in range(2)]
    assert done[0]["ETag"] == done[1]["ETag"]  # said twice, done once
    assert store.read("k") == b"small"


def test_what_moto_crashes_on_is_an_internal_error(store: Store) -> None:
    with Connection(store) as connection:
        answer = connection.ask("PUT", "/chaosspot/k?uploadId=u&partNumber=x", b"x")
        assert (answer.status, answer.code) == (404, "NoSuchUpload")
        answer = connection.ask("POST", "/chaosspot/k?select", b"x")
        assert (answer.status, answer.code) == (500, "InternalError")
        assert answer.headers["content-type"] == "application/xml"
        assert connection.ask("PATCH", "/chaosspot/k").status in (405, 500)
