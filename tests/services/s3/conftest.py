from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from storing import Store, storing


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[Store, Any]]:
    """One store for all tests of a worker, as moto takes its time to start."""
    with storing() as store:
        yield store, store.client()


@pytest.fixture
def store(running: tuple[Store, Any]) -> Iterator[Store]:
    """An empty store that behaves."""
    yield running[0]
    running[0].forget(running[1])


@pytest.fixture
def client(running: tuple[Store, Any]) -> Any:
    """boto3's client, which tries once."""
    return running[1]
