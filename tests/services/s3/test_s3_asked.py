"""What a request asks for."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from chaosspot.services.s3.asked import read

GIVEN = {"Host": "127.0.0.1:9000"}


def asked(line: str, **headers: str) -> Any:
    method, target = line.split(" ", 1)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return read(method, target, CIMultiDict({**GIVEN, **given}))


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        ("GET /", "other"),
        ("GET /b", "list"),
        ("GET /b/?list-type=2&prefix=a", "list"),
        ("GET /b?versions", "list"),
        ("GET /b?uploads", "list"),
        ("GET /b?location", "other"),
        ("PUT /b", "other"),
        ("PUT /b?versioning", "other"),
        ("DELETE /b", "other"),
        ("HEAD /b", "head"),
        ("POST /b?delete", "delete"),
        ("POST /b", "put"),
        ("GET /b/k", "get"),
        ("GET /b/k?versionId=1", "get"),
        ("GET /b/k?acl", "other"),
        ("GET /b/k?attributes", "other"),
        ("HEAD /b/k", "head"),
        ("PUT /b/k", "put"),
        ("PUT /b/k?tagging", "other"),
        ("DELETE /b/k", "delete"),
        ("POST /b/k?uploads", "multipart-create"),
        ("POST /b/k?uploads=", "multipart-create"),
        ("PUT /b/k?partNumber=1&uploadId=u", "multipart-part"),
        ("POST /b/k?uploadId=u", "multipart-complete"),
        ("DELETE /b/k?uploadId=u", "multipart-abort"),
        ("GET /b/k?uploadId=u", "list"),
        ("POST /b/k?restore", "other"),
        ("PATCH /b/k", "other"),
    ],
)
def test_classes(line: str, operation: str) -> None:
    assert asked(line).operation == operation


def test_a_copy() -> None:
    assert asked("PUT /b/k", x_amz_copy_source="/b/other").operation == "copy"
    part = asked("PUT /b/k?partNumber=1&uploadId=u", X_Amz_Copy_Source="/b/other")
    assert part.operation == "multipart-part"


def test_names_are_decoded_and_the_target_is_not() -> None:
    found = asked("GET /b/a%20b/%C3%BC/..//x%2By%25?x=%2F")
    assert (found.bucket, found.key) == ("b", "a b/ü/..//x+y%")
    assert found.target == "/b/a%20b/%C3%BC/..//x%2By%25?x=%2F"
    assert found.resource == "/b/a b/ü/..//x+y%"
    assert asked("DELETE /b/k?uploadId=a%2Bb").upload_id == "a+b"


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("127.0.0.1:9000", "/k"),
        ("127.0.0.1", "/k"),
        ("[::1]:9000", "/k"),
        ("localhost:9000", "/k"),
        ("s3.amazonaws.com", "/k"),
        ("bucket.localhost:9000", "/bucket/k"),
        ("my.bucket.localhost", "/my.bucket/k"),
        ("bucket.s3.amazonaws.com", "/bucket/k"),
        ("my.bucket.s3.us-east-1.amazonaws.com:80", "/my.bucket/k"),
        ("bucket.s3-us-west-2.amazonaws.com", "/bucket/k"),
    ],
)
def test_a_bucket_may_be_in_the_host(host: str, target: str) -> None:
    assert read("GET", "/k", CIMultiDict({"host": host})).target == target


def test_a_target_of_a_proxy() -> None:
    found = asked("GET http://127.0.0.1:9000/b/k?versions")
    assert (found.target, found.bucket, found.key) == ("/b/k?versions", "b", "k")


@pytest.mark.parametrize(
    ("line", "authorization"),
    [
        ("GET /b/k", "AWS4-HMAC-SHA256 Credential=AKIA1/20200101/us-east-1/s3/aws4_request, X=1"),
        ("GET /b/k", "AWS AKIA1:c2lnbmF0dXJl"),
        ("GET /b/k?X-Amz-Credential=AKIA1%2F20200101%2Fus-east-1%2Fs3%2Faws4_request", ""),
        ("GET /b/k?AWSAccessKeyId=AKIA1&Signature=x", ""),
    ],
)
def test_who_signed(line: str, authorization: str) -> None:
    assert asked(line, authorization=authorization).access_key == "AKIA1"
    assert asked("GET /b/k").access_key == ""
