"""What an attack comes to when its Docker daemon dies, or has no room or no subnets left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import CHAOSSPOT, of_run, within
from docked import NEEDS_DAEMON
from own_daemon import OwnDaemon

from chaosspot import history as h

pytestmark = [*NEEDS_DAEMON, pytest.mark.long, pytest.mark.timeout(600)]

ENDS_S = 300.0  # it is the end that is awaited, and a busy machine takes its time
CUT = """
[[cluster.group]]
count = 2
zones = ["a", "b"]

[[fault]]
kind = "kill"
on = { at_step = 1_000_000 }
target = { count = 1 }
"""


@pytest.fixture
def daemon() -> Iterator[OwnDaemon]:
    daemon = OwnDaemon()
    try:
        yield daemon
    finally:
        daemon.stop()


class Harness:
    """The command, with leases of its own and that daemon."""

    def __init__(self, folder: Path, daemon: OwnDaemon) -> None:
        self.folder = folder
        self.state = folder / "state"
        self._daemon = daemon
        (folder / "cut.toml").write_text(CUT)

    @contextmanager
    def attacking(self) -> Iterator[subprocess.Popen[str]]:
        argv = [CHAOSSPOT, "attack", "cut.toml", "--trainer", "minimal", "--cluster", "containers"]
        with subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def ended(self) -> tuple[int, str, str]:
        """The exit code of an attack, and what it said."""
        with self.attacking() as process:
            out, err = process.communicate(timeout=ENDS_S)
        return process.returncode, out, err

    def cleanup(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHAOSSPOT, "cleanup"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        own = {"CHAOSSPOT_STATE_HOME": str(self.state), "XDG_CACHE_HOME": str(self.folder)}
        return {**os.environ, **self._daemon.environment, **own}

    def leases(self) -> list[Path]:
        return [path for path in (self.state / "leases").glob("*") if path.name[0] != "."]

    def records(self) -> list[h.Record]:
        (history,) = (self.folder / "runs").glob("2*/history.jsonl")
        return h.read(history)

    def trains(self) -> bool:
        """Whether every node has committed."""
        if not list((self.folder / "runs").glob("2*/history.jsonl")):
            return False
        return len({r.node for r in self.records() if isinstance(r, h.Commit)}) == 2


@pytest.fixture
def harness(tmp_path: Path, daemon: OwnDaemon) -> Harness:
    return Harness(tmp_path, daemon)


def test_a_daemon_that_dies_ends_the_attack_and_the_next_start_cleans_up(
    daemon: OwnDaemon, harness: Harness
) -> None:
    daemon.start()
    with harness.attacking() as process:
        assert within(ENDS_S, harness.trains), process.poll()
        assert len(daemon.everything()) == 6  # three containers and three networks
        daemon.kill()
        _, err = process.communicate(timeout=ENDS_S)
    assert process.returncode == 3, err
    said = f"the docker daemon at {daemon.socket} went away"
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    # Its processes are ended though nobody answered; what the daemon has goes when it is back.
    assert within(ENDS_S, lambda: not of_run(harness.state))
    daemon.start()
    assert daemon.everything()
    done = harness.cleanup()
    assert done.returncode == 0, done.stderr
    assert "PROBLEM" not in done.stdout
    assert daemon.everything() == []
    assert harness.leases() == []


@pytest.mark.soak
def test_subnets_that_are_all_taken_are_named(daemon: OwnDaemon, harness: Harness) -> None:
    daemon.start(
        "ip link add taken type bridge; ip link set taken up; "
        "ip route add 172.16.0.0/12 dev taken; ip route add 192.168.0.0/16 dev taken"
    )
    code, _, err = harness.ended()
    assert code == 3, err
    (line,) = err.strip().splitlines()[-1:]
    assert "make network" in line
    assert "could not find an available, non-overlapping IPv4 address pool" in line
    assert "its subnets (default-address-pools) are all taken" in line
    assert "Traceback" not in err
    assert daemon.everything() == []
    assert harness.leases() == []


@pytest.mark.soak
def test_a_daemon_without_room_is_named(daemon: OwnDaemon, harness: Harness) -> None:
    daemon.data.mkdir()
    room = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(daemon.data)]
    subprocess.run(room, check=True)
    daemon.start()
    fill(daemon.data / "filler")
    code, _, err = harness.ended()
    assert code in (3, 4), err
    assert "no space left on device" in err.lower()
    assert "Traceback" not in err
    (daemon.data / "filler").unlink()
    harness.cleanup()
    assert daemon.everything() == []
    assert harness.leases() == []


@pytest.mark.soak
def test_a_run_directory_without_room_is_named(
    daemon: OwnDaemon, harness: Harness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    daemon.start()
    runs = tmp_path / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(runs)], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", str(runs)], check=True))
    code, _, err = harness.ended()
    assert code == 3, err
    assert "no space left on device" in err.lower()
    assert "Traceback" not in err
    harness.cleanup()
    assert daemon.everything() == []
    assert harness.leases() == []


def fill(path: Path) -> None:
    """Take all the room there is."""
    told = subprocess.run(
        ["dd", "if=/dev/zero", f"of={path}", "bs=64k"], capture_output=True, text=True, check=False
    )
    assert "No space left on device" in told.stderr
