"""The record of what changed, which is there before any client hears of it."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from storing import Connection, Store, head, storing

from chaosspot import store_misbehaviour as m
from chaosspot.services.s3 import ObjectGone, ObjectStored, UploadChanged
from chaosspot.services.s3.changes import deleted_keys

MB = 1 << 20


def stored(key: str, body: bytes) -> tuple[object, ...]:
    return ("stored", key, len(body), hashlib.sha256(body).hexdigest())


def taken(store: Store) -> list[tuple[object, ...]]:
    """What changed since the last time."""
    found: list[tuple[object, ...]] = []
    for change in store.changes:
        match change:
            case ObjectStored():
                found.append(("stored", change.key, change.size_bytes, change.sha256))
            case ObjectGone():
                found.append(("gone", change.key))
            case UploadChanged():
                found.append((change.state, change.key, change.upload))
    store.changes.clear()
    return found


def test_objects(store: Store) -> None:
    client = store.client("node-3")
    client.put_object(Bucket=store.bucket, Key="a b", Body=b"one")
    client.put_object(Bucket=store.bucket, Key="a b", Body=b"three")
    assert {change.node for change in store.changes} == {"node-3"}
    assert [change.t for change in store.changes] == sorted(change.t for change in store.changes)
    assert store.changes[-1].t < time.monotonic()
    assert taken(store) == [stored("a b", b"one"), stored("a b", b"three")]
    client.copy_object(Bucket=store.bucket, Key="c", CopySource=f"{store.bucket}/a b")
    assert taken(store) == [stored("c", b"three")]
    client.delete_object(Bucket=store.bucket, Key="a b")
    assert taken(store) == [("gone", "a b")]
    keys = [{"Key": "c"}, {"Key": "never <&>"}]
    client.delete_objects(Bucket=store.bucket, Delete={"Objects": keys, "Quiet": True})
    assert taken(store) == [("gone", "c"), ("gone", "never <&>")]
    client.put_object(Bucket=store.bucket, Key="k", Body=b"x")
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    client.put_object_tagging(Bucket=store.bucket, Key="k", Tagging=tags)
    client.get_object(Bucket=store.bucket, Key="k")
    assert taken(store) == [stored("k", b"x")]


def test_uploads(store: Store, client: Any) -> None:
    where = {"Bucket": store.bucket, "Key": "k"}
    bodies = b"a" * 5 * MB, b"end"
    upload = client.create_multipart_upload(**where)["UploadId"]
    parts = [
        {
            "PartNumber": number,
            "ETag": client.upload_part(**where, UploadId=upload, PartNumber=number, Body=body)[
                "ETag"
            ],
        }
        for number, body in enumerate(bodies, 1)
    ]
    assert taken(store) == [("begun", "k", upload)]
    client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    assert taken(store) == [stored("k", b"".join(bodies)), ("completed", "k", upload)]
    other = client.create_multipart_upload(**where)["UploadId"]
    client.abort_multipart_upload(**where, UploadId=other)
    assert taken(store) == [("begun", "k", other), ("aborted", "k", other)]
    third = client.create_multipart_upload(**where)["UploadId"]
    store.misbehave(m.NoSuchUpload())
    for _ in range(2):
        with pytest.raises(ClientError):
            client.upload_part(**where, UploadId=third, PartNumber=1, Body=b"late")
    assert taken(store) == [("begun", "k", third), ("aborted", "k", third)]


def test_what_was_refused_is_no_change_and_what_was_lost_is_one(store: Store, client: Any) -> None:
    with Connection(store) as connection:
        wrong = connection.ask("PUT", "/chaosspot/k", b"x", Content_MD5="1B2M2Y8AsgTpgAmY7PhCfg==")
        assert wrong.code == "BadDigest"
    number = store.misbehave(m.SlowDown())
    with pytest.raises(ClientError):
        client.put_object(Bucket=store.bucket, Key="k", Body=b"x")
    store.call(lambda: store.service.behave(number))
    with pytest.raises(ClientError):
        client.put_object(Bucket="elsewhere", Key="k", Body=b"x")
    client.put_object(Bucket=store.bucket, Key="k", Body=b"x")
    with pytest.raises(ClientError):
        client.put_object(Bucket=store.bucket, Key="k", Body=b"y", IfNoneMatch="*")
    assert taken(store) == [stored("k", b"x")]
    store.misbehave(m.LostReply())
    with pytest.raises(HTTPClientError):
        client.delete_object(Bucket=store.bucket, Key="k")
    assert taken(store) == [("gone", "k")]


def test_what_came_whole_is_done_though_its_client_has_left(store: Store) -> None:
    body = b"x" * MB
    with Connection(store) as connection:
        connection.send(head("PUT", "/chaosspot/k", {"Content-Length": len(body)}) + body)
    end_s = time.monotonic() + 30.0
    while not store.changes:
        assert time.monotonic() < end_s
        time.sleep(0.005)
    assert taken(store) == [stored("k", body)]
    assert store.read("k") == body


def test_the_last_change_of_a_key_is_what_is_there(store: Store, client: Any) -> None:
    bodies = [bytes([number]) * 1000 * (number % 5 + 1) for number in range(24)]
    with ThreadPoolExecutor(6) as pool:
        list(
            pool.map(
                lambda body: client.put_object(Bucket=store.bucket, Key="k", Body=body), bodies
            )
        )
    changes = taken(store)
    assert sorted(changes, key=str) == sorted((stored("k", body) for body in bodies), key=str)
    assert changes[-1] == stored("k", store.read("k"))


def test_versions() -> None:
    with storing(versioned=True) as store:
        client = store.client()
        old, new = (
            client.put_object(Bucket=store.bucket, Key="k", Body=body)["VersionId"]
            for body in (b"old", b"new!")
        )
        taken(store)
        client.delete_object(Bucket=store.bucket, Key="k", VersionId=new)
        assert taken(store) == [stored("k", b"old")]
        client.delete_object(Bucket=store.bucket, Key="k")
        assert taken(store) == [("gone", "k")]
        client.delete_object(Bucket=store.bucket, Key="k", VersionId=old)
        assert taken(store) == [("gone", "k")]


def test_deletions_that_failed_are_none() -> None:
    asked = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>"
    space = b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    answer = b"<DeleteResult %s><Error><Key>b</Key><Code>AccessDenied</Code></Error></DeleteResult>"
    assert deleted_keys(asked, answer % space) == ["a"]
