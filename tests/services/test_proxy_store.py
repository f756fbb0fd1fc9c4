"""A store's client behind a proxy that cuts what it is told: it tries again or says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from storing import Store, storing

from chaosspot.services.proxy.hosted import toxiproxy_client
from chaosspot.trainer.place import ObjectPlace
from chaosspot.trainer.snapshot.object_store import ObjectStore

KEY = "step-1/part"
VALUE = bytes(range(256)) * 12_000  # 3 MB


@pytest.fixture(scope="module")
def served() -> Iterator[Store]:
    with storing() as store:
        yield store


@pytest.fixture
def proxied(served: Store) -> Iterator[tuple[ObjectStore, Any]]:
    """The reference trainer's store, and the proxy by which it reaches that."""
    with toxiproxy_client() as toxiproxy:
        upstream = urlsplit(served.call(lambda: served.service.endpoint)).netloc
        proxy = toxiproxy.create(upstream=upstream, name="store")
        told = served.call(lambda: served.service.environment("", environ={}))
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{proxy.listen}",
            aws_access_key_id=told["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
            region_name=told["AWS_REGION"],
            config=Config(proxies={}, retries={"total_max_attempts": 4}, read_timeout=10.0),
        )
        yield ObjectStore(ObjectPlace(bucket=served.bucket), client=client), proxy


def test_answers_that_are_cut_are_put_together(proxied: tuple[ObjectStore, Any]) -> None:
    store, proxy = proxied
    store.put(KEY, VALUE)
    proxy.add_toxic(type="limit_data", attributes={"bytes": 1_100_000})
    assert store.get(KEY) == VALUE


@pytest.mark.parametrize("limit", [0, 5_000])
def test_answers_that_are_always_cut_are_an_error(
    proxied: tuple[ObjectStore, Any], limit: int
) -> None:
    """Before anything, or a little into the body."""
    store, proxy = proxied
    store.put(KEY, VALUE)
    proxy.add_toxic(type="limit_data", attributes={"bytes": limit})
    with pytest.raises(OSError, match=KEY):
        store.get(KEY)
    proxy.destroy_toxic("limit_data_downstream")
    assert store.get(KEY) == VALUE


def test_a_connection_that_is_reset_while_an_object_is_sent_leaves_the_old_one(
    proxied: tuple[ObjectStore, Any], served: Store
) -> None:
    store, proxy = proxied
    store.put(KEY, b"old")
    proxy.add_toxic(type="limit_data", stream="upstream", attributes={"bytes": 100_000})
    with pytest.raises(OSError, match=KEY):
        store.put(KEY, VALUE)
    assert served.read(KEY) == b"old"
