"""Everything that may end an attack from outside: it heals, and the exit code says what it was."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from commands import (
    CHAOSSPOT,
    QUICK,
    Cli,
    attacking,
    cli_in,
    of_run,
    read_until,
    usual_signals,
    within,
)

pytestmark = pytest.mark.long

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # so that a twin is run
    return cli_in(tmp_path, monkeypatch)


def nothing_is_left(cli: Cli, tmp_path: Path) -> None:
    assert of_run(tmp_path / "state") == []
    assert not list((tmp_path / "work").glob("runs/2*/nodes"))
    assert cli("cleanup").stdout == "nothing to heal\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_heals_and_keeps_what_was_recorded(
    cli: Cli, tmp_path: Path, number: signal.Signals
) -> None:
    with attacking(tmp_path) as process:
        read_until(process, "committed by")
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    (run,) = (tmp_path / "work" / "runs").glob("2*")
    assert "interrupted; everything is healed, what was recorded is kept in" in said
    assert run.name in said
    assert "Traceback" not in said
    nothing_is_left(cli, tmp_path)
    judged = cli("judge", "runs/latest", "--json")
    assert judged.returncode == 3
    findings = json.loads(judged.stdout)["findings"]
    assert any("interrupted" in finding["message"] for finding in findings)
    assert [f["outcome"] for f in findings if f["oracle"] == "leaks"] == ["pass"]


@pytest.mark.parametrize("first", SIGNALS)
def test_more_signals_do_not_disturb_the_healing(
    cli: Cli, tmp_path: Path, first: signal.Signals
) -> None:
    with attacking(tmp_path) as process:
        read_until(process, "committed by")
        process.send_signal(first)
        sent = 0
        # Until its lease is closed: what comes after healing may end it in any way.
        while process.poll() is None and list((tmp_path / "state").glob("leases/[!.]*")):
            process.send_signal(SIGNALS[sent % 3])
            sent += 1
            time.sleep(0.002)
        _, said = process.communicate(timeout=30)
    assert sent > 3
    assert process.returncode == 130, said
    assert "everything is healed" in said
    assert "Traceback" not in said
    nothing_is_left(cli, tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_the_twin_heals_too(
    cli: Cli, tmp_path: Path, number: signal.Signals
) -> None:
    with attacking(tmp_path, "--seed", "1") as process:
        read_until(process, "running the undisturbed twin")
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "everything is healed" in said
    nothing_is_left(cli, tmp_path)


@pytest.mark.parametrize("delay_s", [0.25, 0.4, 0.6, 0.8, 1.0])
def test_a_signal_at_the_start_ends_it_too(cli: Cli, tmp_path: Path, delay_s: float) -> None:
    with attacking(tmp_path) as process:
        # The command's own handlers are there before it does anything.
        assert within(10.0, lambda: catches(process.pid, signal.SIGHUP))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    nothing_is_left(cli, tmp_path)


def catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [int(x.split()[1], 16) for x in status.splitlines() if x.startswith("SigCgt")]
    return bool(mask & 1 << (number - 1))


@pytest.mark.parametrize("number", SIGNALS)
def test_any_command_is_ended_by_a_signal_as_by_ctrl_c(number: signal.Signals) -> None:
    code = (
        "import signal, chaosspot.cli as cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def app(): print('ready', flush=True); signal.pause()\n"
        "cli.app = app\ncli.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, preexec_fn=usual_signals
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(10) == 130


def test_an_attack_under_nohup_survives_its_terminal(cli: Cli, tmp_path: Path) -> None:
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with attacking(tmp_path, "--seed", "1", before=nohup) as process:
        read_until(process, "committed by")
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def test_a_terminal_that_hangs_up_is_a_signal_and_nothing_is_left(cli: Cli, tmp_path: Path) -> None:
    """Whatever is printed from then on cannot be; the exit code still tells."""
    pid, terminal = pty.fork()
    if pid == 0:
        usual_signals()
        os.chdir(tmp_path / "work")
        os.execv(CHAOSSPOT, [str(CHAOSSPOT), "attack", QUICK, "--trainer", "minimal"])
    said = b""
    while b"committed by" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    nothing_is_left(cli, tmp_path)


def test_a_reader_that_goes_away_does_not_decide_the_verdict(cli: Cli, tmp_path: Path) -> None:
    """``chaosspot attack ... 2>&1 | head -2`` runs to its end and exits with its own code."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [CHAOSSPOT, "attack", QUICK, "--trainer", "minimal", "--seed", "1"],
        cwd=tmp_path / "work",
        stdout=write,
        stderr=write,
    )
    os.close(write)
    os.read(read, 10)
    os.close(read)
    assert process.wait(60) == 0
    nothing_is_left(cli, tmp_path)


def test_what_was_finished_is_told_when_the_rest_is_interrupted(cli: Cli, tmp_path: Path) -> None:
    with attacking(tmp_path, "--repeat", "3", "--json", "--seed", "1") as process:
        runs = tmp_path / "work" / "runs"
        assert within(60.0, lambda: len(list(runs.glob("2*/history.jsonl"))) == 2)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    told = json.loads((tmp_path / "work" / "out").read_text())
    assert [verdict["outcome"] for verdict in told["verdicts"]] == ["pass"]


# The guardian and the supervisors, killed by somebody.


def guardian_of(process: subprocess.Popen[str]) -> psutil.Process:
    found: list[psutil.Process] = []

    def there() -> bool:
        children = psutil.Process(process.pid).children()
        found[:] = [c for c in children if "guardian.py" in " ".join(c.cmdline())]
        return bool(found)

    assert within(20.0, there)
    return found[0]


@pytest.mark.parametrize(
    "moment", ["", " up (worker", "committed by", "kill ->", "stopped: decided", "undisturbed twin"]
)
def test_a_guardian_that_was_killed_makes_any_run_unknown(
    cli: Cli, tmp_path: Path, moment: str
) -> None:
    with attacking(tmp_path, "--seed", "1") as process:
        if moment:
            read_until(process, moment)
        guardian = guardian_of(process)
        guardian.kill()
        _, said = process.communicate(timeout=60)
    out = (tmp_path / "work" / "out").read_text()
    assert process.returncode == 3, (said, out)
    assert "Traceback" not in said
    words = f"because of ending: the guardian of this run (pid {guardian.pid}) died, killed by"
    assert words in out.replace("\n", " ")
    assert "left behind" not in out
    assert "healed itself: everything is healed" in " ".join(out.split())
    nothing_is_left(cli, tmp_path)
    assert cli("judge", "runs/latest").returncode == 3


def supervisors(guardian: psutil.Process) -> list[psutil.Process]:
    return [c for c in guardian.children() if "supervisor.py" in " ".join(c.cmdline())]


def test_supervisors_that_were_killed_during_the_twin_are_told(cli: Cli, tmp_path: Path) -> None:
    with attacking(tmp_path, "--seed", "1", "--json") as process:
        twin = tmp_path / "work" / "runs" / "latest" / "twin" / "history.jsonl"
        assert within(60.0, lambda: twin.is_file() and '"commit"' in twin.read_text())
        for supervisor in supervisors(guardian_of(process)):
            supervisor.kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    verdict = json.loads((tmp_path / "work" / "out").read_text())["verdicts"][0]
    first = next(f for f in verdict["findings"] if f["outcome"] == "unknown")
    assert first["oracle"] == "twin"
    assert "nodes were ended from outside" in first["message"]
    assert first["message"].count(" was ended from outside") == 3  # and so on
    nothing_is_left(cli, tmp_path)
