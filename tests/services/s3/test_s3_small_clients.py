"""Clients as people use them, with little data; the suites have the large ones."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import obstore
import pytest
from boto3.s3.transfer import TransferConfig
from obstore.exceptions import PermissionDeniedError
from obstore.store import S3Store
from storing import Store

from chaosspot import store_misbehaviour as m

MB = 1 << 20
IN_PARTS = {"multipart_threshold": 5 * MB, "multipart_chunksize": 5 * MB}
BODY = os.urandom(5 * MB + 17)


def native(store: Store, node: str = "") -> S3Store:
    """A client written in Rust, in this very process, which keeps its connections."""
    told = store.call(lambda: store.service.environment(node, environ={}))
    return S3Store(
        store.bucket,
        endpoint=told["AWS_ENDPOINT_URL_S3"],
        access_key_id=told["AWS_ACCESS_KEY_ID"],
        secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
        region=told["AWS_REGION"],
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


@pytest.mark.parametrize("threads", [False, True])
def test_boto3_in_parts(store: Store, threads: bool, tmp_path: Path) -> None:
    client = store.client()
    config = TransferConfig(**IN_PARTS, use_threads=threads)
    client.upload_fileobj(io.BytesIO(BODY), store.bucket, "k", Config=config)
    assert store.read("k") == BODY
    assert store.uploads() == []
    got = io.BytesIO()
    client.download_fileobj(store.bucket, "k", got, Config=config)
    assert got.getvalue() == BODY
    client.download_file(store.bucket, "k", str(tmp_path / "k"), Config=config)
    assert (tmp_path / "k").read_bytes() == BODY
    assert client.head_object(Bucket=store.bucket, Key="k")["ETag"].endswith('-2"')


def test_boto3_with_a_stream_that_cannot_seek(store: Store) -> None:
    client = store.client()

    class Stream(io.RawIOBase):
        def __init__(self) -> None:
            self._from = io.BytesIO(BODY)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self._from.readinto(buffer)

    client.upload_fileobj(Stream(), store.bucket, "k", Config=TransferConfig(**IN_PARTS))
    assert store.read("k") == BODY


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_boto3_with_another_sum(store: Store, algorithm: str) -> None:
    client = store.client()
    extra = {"ChecksumAlgorithm": algorithm}
    config = TransferConfig(**IN_PARTS)
    client.upload_fileobj(io.BytesIO(BODY), store.bucket, "large", ExtraArgs=extra, Config=config)
    client.put_object(Bucket=store.bucket, Key="small", Body=BODY[:100], **extra)
    told = client.head_object(Bucket=store.bucket, Key="small", ChecksumMode="ENABLED")
    assert told[f"Checksum{algorithm}"]
    got = client.get_object(Bucket=store.bucket, Key="small", ChecksumMode="ENABLED")
    assert got["Body"].read() == BODY[:100]  # verified on the way
    assert store.read("large") == BODY


@pytest.mark.timeout(60)
def test_a_native_client_in_this_process(store: Store) -> None:
    client = native(store)
    obstore.put(client, "small", b"x")
    obstore.put(client, "large", io.BytesIO(BODY), chunk_size=5 * MB, max_concurrency=3)
    assert bytes(obstore.get(client, "large").bytes()) == BODY == store.read("large")
    assert bytes(obstore.get_range(client, "large", start=5, end=15)) == BODY[5:15]
    keys = [each["path"] for page in obstore.list(client) for each in page]
    assert sorted(keys) == ["large", "small"]
    obstore.delete(client, keys)
    assert (store.keys(), store.uploads()) == ([], [])


@pytest.mark.timeout(60)
def test_a_native_client_understands_refusals(store: Store) -> None:
    client = native(store, "node-7")
    store.misbehave(m.Denied(nodes="node-7"))
    with pytest.raises(PermissionDeniedError, match="AccessDenied"):
        obstore.put(client, "k", b"x")
    with pytest.raises(PermissionDeniedError):
        obstore.get(client, "k")
    assert {injection.node for injection in store.injections} == {"node-7"}
