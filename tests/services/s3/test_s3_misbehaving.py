"""Misbehaviours on the wire, and what boto3 makes of them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import boto3.s3.transfer
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    FlexibleChecksumError,
    HTTPClientError,
    ResponseStreamingError,
)
from s3transfer.exceptions import RetriesExceededError
from storing import Connection, Store, code_of, head

from chaosspot import store_misbehaviour as m

BODY = bytes(range(256)) * 40

ACTS: dict[str, Callable[[Any, str], object]] = {
    "get": lambda client, bucket: client.get_object(Bucket=bucket, Key="k"),
    "list": lambda client, bucket: client.list_objects_v2(Bucket=bucket),
    "put": lambda client, bucket: client.put_object(Bucket=bucket, Key="k", Body=BODY),
    "copy": lambda client, bucket: client.copy_object(
        Bucket=bucket, Key="k", CopySource=f"{bucket}/other"
    ),
    "delete": lambda client, bucket: client.delete_object(Bucket=bucket, Key="k"),
    "multipart-create": lambda client, bucket: client.create_multipart_upload(
        Bucket=bucket, Key="k"
    ),
    "multipart-part": lambda client, bucket: client.upload_part(
        Bucket=bucket, Key="k", UploadId="u", PartNumber=1, Body=BODY
    ),
    "multipart-complete": lambda client, bucket: client.complete_multipart_upload(
        Bucket=bucket,
        Key="k",
        UploadId="u",
        MultipartUpload={"Parts": [{"ETag": "e", "PartNumber": 1}]},
    ),
    "multipart-abort": lambda client, bucket: client.abort_multipart_upload(
        Bucket=bucket, Key="k", UploadId="u"
    ),
    "other": lambda client, bucket: client.get_bucket_versioning(Bucket=bucket),
}


@pytest.mark.parametrize(
    ("what", "status", "code", "message"),
    [
        (m.SlowDown(), 503, "SlowDown", "Please reduce your request rate."),
        (m.SlowDown(above_per_s=0), 503, "SlowDown", "Please reduce your request rate."),
        (
            m.Failure(),
            500,
            "InternalError",
            "We encountered an internal error. Please try again.",
        ),
        (
            m.Failure(status=503),
            503,
            "ServiceUnavailable",
            "Service is unable to handle request.",
        ),
        (m.ExpiredToken(), 400, "ExpiredToken", "The provided token has expired."),
        (
            m.TimeTooSkewed(),
            403,
            "RequestTimeTooSkewed",
            "The difference between the request time and the current time is too large.",
        ),
        (m.Denied(), 403, "AccessDenied", "Access Denied"),
    ],
)
def test_every_class_is_refused_as_s3_does(
    store: Store, client: Any, what: Any, status: int, code: str, message: str
) -> None:
    client.put_object(Bucket=store.bucket, Key="kept", Body=b"x")
    number = store.misbehave(what)
    for act in ACTS.values():
        with pytest.raises(ClientError) as caught:
            act(client, store.bucket)
        assert code_of(caught.value) == (status, code)
        assert caught.value.response["Error"]["Message"] == message
        told = caught.value.response["ResponseMetadata"]
        assert len(told["RequestId"]) == 16
        assert len(told["HostId"]) == 76
    with pytest.raises(ClientError) as caught:
        client.head_object(Bucket=store.bucket, Key="kept")
    assert code_of(caught.value) == (status, str(status))  # there is no document to read
    operations = [injection.operation for injection in store.injections]
    assert (operations[: len(ACTS)], set(operations[len(ACTS) :])) == ([*ACTS], {"head"})
    assert {injection.detail["code"] for injection in store.injections} == {code}
    assert store.call(store.service.injections)[number] == len(operations)
    store.call(lambda: store.service.behave(number))
    assert client.get_object(Bucket=store.bucket, Key="kept")["Body"].read() == b"x"
    assert store.keys() == ["kept"]


def test_a_clock_that_is_off_is_told_in_both_places(store: Store) -> None:
    store.misbehave(m.TimeTooSkewed(skew_s=7200.0))
    with Connection(store) as connection:
        answer = connection.ask("GET", "/chaosspot/k")
    text = answer.body.decode().partition("<ServerTime>")[2].partition("</ServerTime>")[0]
    for told in (parsedate_to_datetime(answer.headers["date"]), datetime.fromisoformat(text)):
        assert abs(told.timestamp() - time.time() - 7200.0) < 60.0
    assert b"<MaxAllowedSkewMilliseconds>900000<" in answer.body


def test_who_waits_with_its_body_is_refused_without_it(store: Store) -> None:
    store.misbehave(m.SlowDown())
    with Connection(store) as connection:
        expects = {"Content-Length": 1 << 30, "Expect": "100-continue"}
        connection.send(head("PUT", "/chaosspot/k", expects))
        assert connection.answer().code == "SlowDown"
        assert connection.rest() == b""


def test_only_the_nodes_keys_and_classes_that_are_meant(store: Store) -> None:
    first, second = store.client("node-1"), store.client("node-2")
    store.misbehave(m.Denied(nodes="node-1", keys="a/*", operations=("put",)))
    before = store.service.requests("node-1"), store.service.requests("node-2")
    for client in (first, second):
        client.put_object(Bucket=store.bucket, Key="b", Body=b"x")
    second.put_object(Bucket=store.bucket, Key="a/1", Body=b"x")
    first.get_object(Bucket=store.bucket, Key="a/1")
    with pytest.raises(ClientError):
        first.put_object(Bucket=store.bucket, Key="a/1", Body=b"x")
    (injection,) = store.injections
    assert (injection.node, injection.operation, injection.key, injection.bucket) == (
        "node-1",
        "put",
        "a/1",
        store.bucket,
    )
    after = store.service.requests("node-1"), store.service.requests("node-2")
    assert (after[0] - before[0], after[1] - before[1]) == (3, 2)


def test_equal_seeds_equal_sequences_over_the_wire(store: Store) -> None:
    def sequence(seed: int) -> list[int]:
        number = store.misbehave(m.SlowDown(rate=0.4, seed=seed))
        with Connection(store) as connection:
            found = [connection.ask("HEAD", "/chaosspot/k").status for _ in range(40)]
        store.call(lambda: store.service.behave(number))
        return found

    first = sequence(1)
    assert set(first) == {404, 503}
    assert sequence(1) == first
    assert sequence(2) != first


def test_it_ends_by_itself(store: Store, client: Any) -> None:
    store.misbehave(m.Denied(lasts_s=0.3))
    end_s = time.monotonic() + 30.0
    with pytest.raises(ClientError):
        client.list_objects_v2(Bucket=store.bucket)
    while store.call(store.service.misbehaviours):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    client.list_objects_v2(Bucket=store.bucket)


def test_stopping_what_is_not_in_force(store: Store) -> None:
    number = store.misbehave(m.Denied(nodes="nobody"))
    with pytest.raises(ValueError, match=f"misbehaviour=999: not in force; .*: {number}"):
        store.call(lambda: store.service.behave(999))
    store.call(lambda: store.service.behave(number))
    with pytest.raises(ValueError, match=f"misbehaviour={number}: not in force; .*: none"):
        store.call(lambda: store.service.behave(number))


# --- slow, cut, lost ------------------------------------------------------------------------------


def test_a_slow_first_byte_comes_after_the_deed(store: Store, client: Any) -> None:
    store.misbehave(m.SlowFirstByte(delay_s=0.5, jitter_s=0.2, operations=("put",)))
    with ThreadPoolExecutor(1) as pool:
        began_s = time.monotonic()
        putting = pool.submit(ACTS["put"], client, store.bucket)
        while not store.injections:
            assert time.monotonic() < began_s + 30.0
            time.sleep(0.005)
        assert store.read("k") == BODY
        putting.result()
    delay_s = store.injections[0].detail["delay_s"]
    assert 0.5 <= delay_s < 0.7  # type: ignore[operator]
    assert time.monotonic() - began_s >= delay_s  # type: ignore[operator]


@pytest.mark.parametrize("ending", ["closed", "reset"])
@pytest.mark.parametrize("keep", [0.0, 0.3])
def test_a_truncated_body(store: Store, client: Any, ending: Any, keep: float) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=BODY)
    store.misbehave(m.Truncated(keep=keep, ending=ending))
    with Connection(store) as connection:
        connection.send(head("GET", "/chaosspot/k", {}))
        answer = b"" if ending == "reset" else connection.rest()
        if ending == "reset":
            with pytest.raises(ConnectionResetError):
                connection.rest()
    if answer:
        told, _, body = answer.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(BODY)}".lower() in told.decode().lower()
        assert body == BODY[: int(len(BODY) * keep)]
    with pytest.raises((ResponseStreamingError, HTTPClientError)):
        client.get_object(Bucket=store.bucket, Key="k")["Body"].read()
    assert store.made() == ["truncated"] * 2
    assert store.injections[0].detail == {
        "sent_bytes": int(len(BODY) * keep),
        "of_bytes": len(BODY),
    }
    with pytest.raises(ClientError):  # there is nothing to truncate
        client.get_object(Bucket=store.bucket, Key="nothing")
    assert store.made() == ["truncated"] * 2


def test_a_download_tries_a_truncated_body_again_then_gives_up(store: Store, client: Any) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=BODY)
    config = boto3.s3.transfer.TransferConfig(num_download_attempts=3)
    store.misbehave(m.Truncated(first=2))
    got = io.BytesIO()
    client.download_fileobj(store.bucket, "k", got, Config=config)
    assert (got.getvalue(), len(store.injections)) == (BODY, 2)
    store.misbehave(m.Truncated())
    with pytest.raises(RetriesExceededError):
        client.download_fileobj(store.bucket, "k", io.BytesIO(), Config=config)
    assert len(store.injections) == 5


@pytest.mark.parametrize("ending", ["closed", "reset"])
def test_a_lost_reply_comes_after_the_deed(store: Store, client: Any, ending: Any) -> None:
    where = {"Bucket": store.bucket, "Key": "k"}
    store.misbehave(m.LostReply(ending=ending))
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        client.put_object(**where, Body=BODY)
    assert store.read("k") == BODY
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        client.delete_object(**where)
    assert store.keys() == []
    assert store.made() == ["lost-reply"] * 2
    for act in (  # nothing was done that could be in doubt
        lambda: client.upload_part(**where, UploadId="u", PartNumber=1, Body=b"x"),
        lambda: client.put_object(**where, Body=b"x", IfMatch='"0"'),
        lambda: client.copy_object(**where, CopySource=f"{store.bucket}/nothing"),
    ):
        with pytest.raises(ClientError):
            act()
    assert store.made() == ["lost-reply"] * 2


def test_a_lost_reply_to_the_end_of_an_upload_is_asked_for_again(store: Store) -> None:
    client = store.client(retries={"total_max_attempts": 3, "mode": "standard"})
    where = {"Bucket": store.bucket, "Key": "k"}
    upload = client.create_multipart_upload(**where)["UploadId"]
    part = client.upload_part(**where, UploadId=upload, PartNumber=1, Body=BODY)["ETag"]
    store.misbehave(m.LostReply(operations=("multipart-complete",), first=1))
    parts = {"Parts": [{"ETag": part, "PartNumber": 1}]}
    done = client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload=parts)
    assert done["ETag"].endswith('-1"')
    assert (store.made(), store.read("k"), store.uploads()) == (["lost-reply"], BODY, [])


def test_botocore_tries_again_what_is_slowed_down(store: Store) -> None:
    client = store.client(retries={"total_max_attempts": 4, "mode": "standard"})
    store.misbehave(m.SlowDown(first=2, operations=("put",)))
    told = client.put_object(Bucket=store.bucket, Key="k", Body=BODY)["ResponseMetadata"]
    assert (told["RetryAttempts"], store.made()) == (2, ["slow-down"] * 2)
    assert store.read("k") == BODY


# --- bits -----------------------------------------------------------------------------------------


def flipped(got: bytes, right: bytes) -> list[tuple[int, int]]:
    """Where bytes differ, and in how many bits."""
    pairs = enumerate(zip(got, right, strict=True))
    return [(at, (a ^ b).bit_count()) for at, (a, b) in pairs if a != b]


def test_a_flipped_bit_is_one_bit_and_another_each_time(store: Store, client: Any) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=BODY)
    store.misbehave(m.BitFlip(seed=1))
    found = []
    with Connection(store) as connection:
        for _ in range(5):
            answer = connection.ask("GET", "/chaosspot/k")
            found += flipped(answer.body, BODY)
    assert [bits for _, bits in found] == [1] * 5
    assert len({at for at, _ in found}) == 5
    assert [injection.detail["byte_of_body"] for injection in store.injections] == [
        at for at, _ in found
    ]
    assert store.read("k") == BODY


def test_a_bad_byte_is_bad_wherever_it_is_read(store: Store, client: Any) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=BODY)
    store.misbehave(m.BitFlip(at_byte=100))
    with Connection(store) as connection:
        for given, expected in (
            ("bytes=0-", [(100, 1)]),
            ("bytes=100-100", [(0, 1)]),
            ("bytes=60-200", [(40, 1)]),
            ("bytes=101-200", []),
            ("bytes=0-99", []),
        ):
            low, _, high = given.removeprefix("bytes=").partition("-")
            right = BODY[int(low) : int(high) + 1 if high else None]
            answer = connection.ask("GET", "/chaosspot/k", Range=given)
            assert flipped(answer.body, right) == expected, given
    assert len(store.injections) == 3


def test_a_client_that_verifies_sees_a_flipped_bit_and_one_that_does_not_does_not(
    store: Store, client: Any
) -> None:
    client.put_object(Bucket=store.bucket, Key="k", Body=BODY)
    store.misbehave(m.BitFlip())
    with pytest.raises(FlexibleChecksumError):
        client.get_object(Bucket=store.bucket, Key="k")["Body"].read()
    trusting = store.client(response_checksum_validation="when_required")
    got = trusting.get_object(Bucket=store.bucket, Key="k")["Body"].read()
    assert [bits for _, bits in flipped(got, BODY)] == [1]


# --- uploads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["multipart-part", "multipart-complete", "multipart-abort"])
def test_an_upload_that_a_rule_has_aborted(store: Store, client: Any, operation: Any) -> None:
    where = {"Bucket": store.bucket, "Key": "a b"}
    where["UploadId"] = client.create_multipart_upload(**where)["UploadId"]
    part = client.upload_part(**where, PartNumber=1, Body=BODY)["ETag"]
    parts = {"Parts": [{"ETag": part, "PartNumber": 1}]}
    acts: dict[str, Callable[[], object]] = {
        "multipart-part": lambda: client.upload_part(**where, PartNumber=2, Body=b"late"),
        "multipart-complete": lambda: client.complete_multipart_upload(
            **where, MultipartUpload=parts
        ),
        "multipart-abort": lambda: client.abort_multipart_upload(**where),
    }
    store.misbehave(m.NoSuchUpload(operations=(operation,), first=1))
    for _ in range(2):  # it is gone for good
        with pytest.raises(ClientError) as caught:
            acts[operation]()
        assert code_of(caught.value) == (404, "NoSuchUpload")
    assert (store.made(), store.uploads(), store.keys()) == (["no-such-upload"], [], [])
