from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, and its children inherit that: the tests of Ctrl-C
    would test nothing."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that the other workers do not wait for them at the end."""
    items.sort(key=lambda item: item.path.name != "test_reference.py")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leases and twins of the tests stay out of the user's own; workers of one session share."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHAOSSPOT_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_CACHE_HOME", str(base.parent / "twins"))
        yield
