"""The command as users run it, in folders of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

CHAOSSPOT = Path(sys.executable).with_name("chaosspot")
QUICK = "suites/schedules/kill-and-replace"

Cli = Callable[..., subprocess.CompletedProcess[str]]


def cli_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A function that runs the command in an empty folder, with leases of its own."""
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()

    def run(*argv: object, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHAOSSPOT, *map(str, argv)],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


def usual_signals() -> None:
    """Under nohup or in a shell's background job some are ignored, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def attacking(
    tmp_path: Path,
    *argv: str,
    schedule: str = QUICK,
    before: Callable[[], object] = usual_signals,
) -> Iterator[subprocess.Popen[str]]:
    """``chaosspot attack`` in the background, in a folder of its own; it calls ``before`` first."""
    work = tmp_path / "work"
    work.mkdir(parents=True, exist_ok=True)
    with (
        open(work / "out", "w") as out,
        subprocess.Popen(
            [CHAOSSPOT, "attack", schedule, "--trainer", "minimal", *argv],
            cwd=work,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=before,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Read its standard error until a line has these words."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError(f"{words!r} was not said: {''.join(said)}")


def of_run(state: Path) -> list[psutil.Process]:
    """Live processes of any run whose leases are kept in ``state``."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("CHAOSSPOT_STATE_HOME") == str(state)
            # A node's own processes have a cookie, which begins with the lease's name.
            cookie = process.environ().get("CHAOSSPOT_RUN", "")
            lease = any(part.name in cookie for part in (state / "leases").glob("*") if cookie)
            if (mine or lease) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def within(limit_s: float, done: Callable[[], bool]) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.05)
    return done()
