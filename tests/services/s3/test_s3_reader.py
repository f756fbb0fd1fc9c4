"""What the store holds, read past all misbehaviour."""

from __future__ import annotations

from typing import Any

import pytest
from storing import Store, storing

from chaosspot import store_misbehaviour as m
from chaosspot.services.s3 import Reader


def test_it_sees_what_is_there_whatever_clients_are_told(store: Store, client: Any) -> None:
    client.put_object(Bucket=store.bucket, Key="a b/ü&<1>", Body=b"12345")
    upload = client.create_multipart_upload(Bucket=store.bucket, Key="a b/m")["UploadId"]
    where = {"Bucket": store.bucket, "Key": "a b/m", "UploadId": upload}
    for number in (1, 3):
        client.upload_part(**where, PartNumber=number, Body=b"x" * number)
    store.misbehave(m.Denied())
    reader = store.service.reader
    (found,) = store.run(reader.objects("a b/"))
    assert (found.key, found.size_bytes) == ("a b/ü&<1>", 5)
    assert found.etag == "827ccb0eea8a706c4c34a16891f84e7b"
    assert store.run(reader.objects("b")) == ()
    assert store.run(reader.read(found.key)) == b"12345"
    (version,) = store.run(reader.versions())
    assert (version.key, version.version, version.latest) == (found.key, "null", True)
    assert store.run(reader.read(found.key, version.version)) == b"12345"
    (open_upload,) = store.run(reader.uploads())
    assert (open_upload.key, open_upload.id) == ("a b/m", upload)
    assert open_upload.parts_bytes == {1: 1, 3: 3}
    with pytest.raises(FileNotFoundError, match="'nothing'"):
        store.run(reader.read("nothing"))
    assert store.injections == []


@pytest.mark.parametrize("page_keys", [1, 3, 8])
def test_more_than_a_page(store: Store, client: Any, page_keys: int) -> None:
    names = [f"{number}/a b" for number in range(8)]
    for name in names:
        client.put_object(Bucket=store.bucket, Key=name, Body=b"x")
    reader = Reader(store.service.reader._upstream, store.bucket, page_keys=page_keys)
    assert [each.key for each in store.run(reader.objects())] == names
    assert [each.key for each in store.run(reader.versions())] == names


def test_versions_and_marks_over_pages() -> None:
    with storing(versioned=True) as store:
        client = store.client()
        for number in range(3):
            for key in ("a", "b"):
                client.put_object(Bucket=store.bucket, Key=key, Body=b"x" * number)
        client.delete_object(Bucket=store.bucket, Key="a")
        for page_keys in (2, 100):
            reader = Reader(store.service.reader._upstream, store.bucket, page_keys=page_keys)
            found = store.run(reader.versions())
            told = sorted((v.key, v.deleted, v.latest, v.size_bytes) for v in found)
            assert told == [
                ("a", False, False, 0),
                ("a", False, False, 1),
                ("a", False, False, 2),
                ("a", True, True, 0),
                ("b", False, False, 0),
                ("b", False, False, 1),
                ("b", False, True, 2),
            ]
        sizes = {
            v.size_bytes: store.run(reader.read("a", v.version))
            for v in found
            if v.key == "a" and not v.deleted
        }
        assert sizes == {0: b"", 1: b"x", 2: b"xx"}
        assert store.keys() == ["b"]
        with pytest.raises(FileNotFoundError, match="'a'"):
            store.read("a")
