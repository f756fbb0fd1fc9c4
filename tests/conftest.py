from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from typing import Any

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
    """The longest first, so that the other workers do not wait for them at the end."""
    first = ["test_tutorial.py", "test_wheel.py", "test_reference.py", "test_clouds_attacks.py"]
    items.sort(key=lambda i: first.index(i.path.name) if i.path.name in first else len(first))


# One worker has all of a group: those of the wheel share an environment that takes a minute to
# make, and clusters of the reference trainer take all the CPU they get, so that more than two at
# a time take as long as one by one, and longer. (xdist's own groups do not work with pytest 9.2.)
GROUPS = {
    "wheel": ("test_wheel.py", "test_tutorial.py"),
    "torch": ("test_trainer_processes.py", "[mixed]", "[short-memory]"),
    "torch, whole attacks": ("reference",),
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            named = (group for group, parts in GROUPS.items() if any(p in nodeid for p in parts))
            return next(named, nodeid)

    return Grouped(config, log)


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
