"""The object store as what outlives nodes: cut, lost, denied and damaged answers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from snapshotted import JOB, advance, flash_at, restore, tiny_state, whole, write
from storing import Store, storing

from chaosspot import store_misbehaviour as m
from chaosspot.trainer.place import ObjectPlace, place
from chaosspot.trainer.snapshot.object_store import ObjectStore
from chaosspot.trainer.snapshot.parts import complete
from chaosspot.trainer.snapshot.uploader import Uploader

PART = 5 << 20  # the least that S3 takes
LARGE = os.urandom(2 * PART + 1000)
KEY = whole(1).data_key

Make = Callable[..., ObjectStore]


@pytest.fixture(scope="module")
def serving() -> Iterator[Store]:
    with storing() as store:
        yield store


@pytest.fixture
def served(serving: Store) -> Store:
    serving.forget(serving.client())
    return serving


@pytest.fixture
def client(served: Store) -> Any:
    return Counting(served.client("node-0", retries={"mode": "standard", "total_max_attempts": 2}))


@pytest.fixture
def store(served: Store, client: Any) -> ObjectStore:
    where = ObjectPlace(bucket=served.bucket, prefix="snapshots/")
    return ObjectStore(where, part_bytes=PART, client=client)


class Counting:
    """A client that notes the parts it sends, and can be made to fail at one."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.parts: list[int] = []
        self.dies_at: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def upload_part(self, **request: Any) -> Any:
        if request["PartNumber"] == self.dies_at:
            raise ConnectionAbortedError("the node is gone")
        self.parts.append(request["PartNumber"])
        return self._client.upload_part(**request)


@pytest.mark.parametrize(
    "value", [b"", b"few", bytearray(LARGE[:PART]), memoryview(LARGE)], ids=len
)
def test_what_is_put_is_there(store: ObjectStore, value: Any) -> None:
    store.put(KEY, value)
    store.verify(KEY, value)
    assert store.get(KEY) == value
    assert (store.keys(), store.unfinished()) == ([KEY], [])
    other = bytes(len(value)) if value else b"x"
    with pytest.raises(OSError, match=KEY):
        store.verify(KEY, other)
    store.delete(KEY)
    store.delete(KEY)
    assert store.keys() == []
    with pytest.raises(FileNotFoundError, match=KEY):
        store.get(KEY)


def test_an_upload_is_taken_up_where_a_node_died(
    store: ObjectStore, client: Any, served: Store
) -> None:
    client.dies_at = 3
    with pytest.raises(ConnectionAbortedError):
        store.put(KEY, LARGE)
    assert store.unfinished() == [KEY]
    assert store.keys() == [], "what is unfinished is not to be seen"
    client.dies_at = None
    store.put(KEY, LARGE)
    assert client.parts == [1, 2, 3], "a part that was there was sent again"
    assert served.read(f"snapshots/{KEY}") == LARGE
    assert store.unfinished() == []


def test_parts_of_other_bytes_are_not_taken_up(
    store: ObjectStore, client: Any, served: Store
) -> None:
    client.dies_at = 3
    with pytest.raises(ConnectionAbortedError):
        store.put(KEY, bytes(PART) + LARGE[PART:])
    client.dies_at = None
    store.put(KEY, LARGE)
    assert client.parts == [1, 2, 1, 3]
    assert served.read(f"snapshots/{KEY}") == LARGE


def test_an_upload_that_was_aborted_fails_and_the_next_one_begins_anew(
    store: ObjectStore, served: Store
) -> None:
    served.misbehave(m.NoSuchUpload(operations=("multipart-part",), first=1))
    with pytest.raises(OSError, match="NoSuchUpload"):
        store.put(KEY, LARGE)
    store.put(KEY, LARGE)
    assert served.read(f"snapshots/{KEY}") == LARGE


@pytest.mark.parametrize("operation", ["multipart-complete", "multipart-part", "put"])
def test_a_lost_answer_leaves_the_right_object(
    store: ObjectStore, served: Store, operation: Any
) -> None:
    value = b"few" if operation == "put" else LARGE
    served.misbehave(m.LostReply(operations=(operation,), first=1))
    store.put(KEY, value)
    store.verify(KEY, value)
    assert served.made() == ["lost-reply"]
    assert served.read(f"snapshots/{KEY}") == value


def test_a_body_that_is_cut_is_taken_up_where_it_ended(store: ObjectStore, served: Store) -> None:
    store.put(KEY, LARGE)
    served.misbehave(m.Truncated(operations=("get",), keep=0.5, first=2))
    assert store.get(KEY) == LARGE
    assert served.made() == ["truncated"] * 2


def test_a_body_that_is_always_cut_is_an_error_and_never_short(
    store: ObjectStore, served: Store
) -> None:
    store.put(KEY, LARGE)
    served.misbehave(m.Truncated(operations=("get",), keep=0.0))
    with pytest.raises(OSError, match=KEY):
        store.get(KEY)
    assert len(served.made()) == 4


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        (m.Denied(), "AccessDenied"),
        (m.ExpiredToken(), "ExpiredToken"),
        (m.TimeTooSkewed(), "RequestTimeTooSkewed"),
        (m.SlowDown(), "SlowDown"),
        (m.Failure(status=500), "InternalError"),
    ],
)
def test_a_store_that_refuses_is_an_os_error(
    store: ObjectStore, served: Store, what: m.StoreMisbehaviourKind, shown: str
) -> None:
    served.misbehave(what)
    for act in (
        lambda: store.put(KEY, b"few"),
        lambda: store.put(KEY, LARGE),
        lambda: store.get(KEY),
        store.keys,
        store.unfinished,
    ):
        with pytest.raises(OSError, match=shown):
            act()


def test_a_store_that_nobody_serves_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "unused")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with pytest.raises(OSError, match="Could not connect"):
            ObjectStore(ObjectPlace(bucket="a-bucket")).keys()


def saved(root: Path, store: ObjectStore, steps: int) -> None:
    """Snapshots of that many steps, on flash and in the store."""
    state = tiny_state()
    with flash_at(root) as flash, Uploader(flash, store, job=JOB, keep=3) as uploader:
        for step in range(1, steps + 1):
            write(flash, advance(state))
            uploader.submit(whole(step))
            assert uploader.wait(30)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before(
    store: ObjectStore, served: Store, tmp_path: Path
) -> None:
    saved(tmp_path / "flash", store, steps=2)
    served.misbehave(m.BitFlip(keys=f"*{whole(2).data_key}"))
    with flash_at(tmp_path / "new") as flash:
        found, state = restore(flash, store)
    assert (found, state.step) == (("store", 1), 1)
    assert "bit-flip" in served.made()


def test_what_newer_snapshots_make_superfluous_is_removed_unfinished_ones_too(
    store: ObjectStore, client: Any, served: Store, tmp_path: Path
) -> None:
    client.dies_at = 2
    for step in (1, 3):
        with pytest.raises(ConnectionAbortedError):
            store.put(whole(step).data_key, LARGE)
    client.dies_at = None
    saved(tmp_path / "flash", store, steps=2)
    assert [snapshot.step for snapshot in complete(store.keys())] == [1, 2]
    assert store.unfinished() == [whole(3).data_key], "it may still be on its way"


def test_a_refused_upload_is_soft(
    store: ObjectStore, served: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.misbehave(m.Denied(operations=("put",)))
    saved(tmp_path / "flash", store, steps=1)
    assert [snapshot.step for snapshot in complete(store.keys())] == []
    assert "AccessDenied" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/directory", Path("/a/directory")),
        ("s3://a-bucket", ObjectPlace(bucket="a-bucket")),
        ("s3://a-bucket/", ObjectPlace(bucket="a-bucket")),
        ("s3://a.bucket/jobs/7/", ObjectPlace(bucket="a.bucket", prefix="jobs/7/")),
    ],
)
def test_places(text: str, expected: Path | ObjectPlace) -> None:
    assert place(text) == expected


@pytest.mark.parametrize("bucket", ["", "ab", "A-Bucket", "a..b", "-abc", "127.0.0.1", "a_bucket"])
def test_a_bucket_that_cannot_be_is_refused(bucket: str) -> None:
    with pytest.raises(ValueError, match="no bucket can have the name"):
        place(f"s3://{bucket}/prefix")
