from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # an example may wait for a core
settings.load_profile("shared machine")


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, and its children inherit that: the tests of Ctrl-C
    would test nothing."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that the other workers do not wait for them at the end.

    Those of the wheel share an environment that takes a minute to make: one worker has them all.
    """
    first = ["test_tutorial.py", "test_wheel.py", "test_reference.py", "test_clouds_attacks.py"]
    items.sort(key=lambda i: first.index(i.path.name) if i.path.name in first else len(first))
    for item in items:
        if item.get_closest_marker("wheel"):
            item.add_marker(pytest.mark.xdist_group("wheel"))


@pytest.fixture(scope="session", autouse=True)
def own_state(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[None]:
    """Leases and twins of the tests stay out of the user's own.

    Twins are shared by workers and sessions, until the code changes.
    """
    code = hashlib.blake2b(digest_size=8)
    for path in sorted((pytestconfig.rootpath / "chaosspot").rglob("*.py")):
        code.update(path.read_bytes())
    twins = pytestconfig.cache.mkdir(f"twins-{code.hexdigest()}")
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHAOSSPOT_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_CACHE_HOME", str(twins))
        yield
