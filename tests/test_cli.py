"""The command line as users meet it: messages, exit codes, what it leaves behind."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import CHAOSSPOT, QUICK, Cli, attacking, cli_in, of_run, read_until, within

from chaosspot import content


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def test_a_passing_attack_exits_0_and_says_so(cli: Cli) -> None:
    done = cli("attack", QUICK, "--trainer", "minimal", "--seed", 1)
    assert done.returncode == 0, done.stderr
    assert "pass  kill-and-replace on minimal, seed 1" in done.stdout
    assert "state equal to the twin's" in done.stdout


def test_a_failing_attack_exits_1_and_names_the_primary_finding(cli: Cli) -> None:
    done = cli("attack", QUICK, "--trainer", "hanging", "--seed", 1)
    assert done.returncode == 1, done.stderr
    assert "because of progress" in done.stdout
    assert "replay: chaosspot replay " in done.stdout


def test_json_is_all_there_is_on_standard_output(cli: Cli) -> None:
    done = cli("attack", QUICK, "--trainer", "minimal", "--repeat", 2, "--seed", 4, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcome"] == "pass"
    assert [verdict["seed"] for verdict in result["verdicts"]] == [4, 5]


def test_judge_and_replay_take_a_run(cli: Cli) -> None:
    assert cli("attack", QUICK, "--trainer", "minimal", "--seed", 1).returncode == 0
    judged = cli("judge", "runs/latest", "--json")
    assert judged.returncode == 0
    assert json.loads(judged.stdout)["outcome"] == "pass"
    replayed = cli("replay", "runs/latest")
    assert replayed.returncode == 0, replayed.stderr
    assert "the verdict matched: pass before, pass now" in replayed.stdout


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["attack", "suden-kill"], 2, "did you mean 'sudden-kill'?"),
        (["attack", "nowhere/at-all.toml"], 2, "no such file: 'nowhere/at-all.toml'"),
        (["attack", "sudden-kill", "--trainer", "refrence"], 2, "did you mean 'reference'?"),
        (["attack", "sudden-kill", "--nodes", "0"], 2, "--nodes 0: at least 1"),
        (["attack", "sudden-kill", "--nodes", "x"], 2, "Invalid value for '--nodes'"),
        (["attack", "sudden-kill", "--seed", "-1"], 2, "--seed -1: at least 0"),
        (["attack", "sudden-kill", "--repeat", "0"], 2, "--repeat 0: at least 1"),
        (["attack", "sudden-kill", "--cluster", "moon"], 2, "cluster = 'moon'; valid: processes"),
        (["attack", "sudden-kill", "--runs", "/proc/none"], 2, "cannot make a run directory"),
        (["attack"], 2, "Missing argument"),
        (["judge", "nowhere"], 2, "'nowhere' is no run"),
        (["replay", "nowhere"], 2, "'nowhere' is no run"),
        (["faults", "show", "suden-kill"], 2, "did you mean 'sudden-kill'?"),
        (["train", "--data", "nowhere.txt"], 2, "nowhere.txt"),
        (["train", "--data", "."], 2, "'.'"),
        (["no-such-command"], 2, "No such command"),
    ],
)
def test_bad_input_gives_one_clear_message(
    cli: Cli, argv: list[str], code: int, message: str
) -> None:
    done = cli(*argv)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_a_command_that_does_not_exist_is_named(cli: Cli, tmp_path: Path) -> None:
    description = tmp_path / "mine.toml"
    description.write_text('command = ["/no/such/trainer"]')
    done = cli("attack", QUICK, "--trainer", description)
    assert done.returncode == 2
    assert "/no/such/trainer" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_internal_error_exits_5(tmp_path: Path) -> None:
    code = (
        "import sys, chaosspot.cli as cli\n"
        "def broken(): raise AssertionError('by hand')\n"
        "cli.app = broken\ncli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 5
    assert "by hand" in done.stderr


def test_a_fault_that_this_machine_cannot_make_exits_4_before_anything_runs(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, chaosspot.cli as cli, chaosspot.undo.mounts as mounts\n"
        "mounts.may_mount = lambda: False\n"
        "sys.argv = ['chaosspot', 'attack', 'disk-full', '--trainer', 'minimal']\n"
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 4, done.stderr
    assert "disk-full: flash_bytes = " in done.stderr
    assert not list(tmp_path.iterdir())


def test_exit_codes_are_documented(cli: Cli) -> None:
    done = cli("--help")
    assert done.returncode == 0
    for meaning in ("0 pass", "1 fail", "2 usage", "3 unknown", "130 interrupted"):
        assert meaning in " ".join(done.stdout.replace("│", " ").split())


def test_settings_are_shown_with_their_origin_and_used(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "work" / "chaosspot.toml").write_text('trainer = "minimal"\nruns = "kept"')
    shown = json.loads(cli("config", "--json").stdout)
    assert shown["trainer"]["value"] == "minimal"
    assert shown["trainer"]["origin"].endswith("chaosspot.toml")
    assert shown["cluster"] == {"value": "processes", "origin": "default"}
    done = cli("attack", QUICK, "--seed", 1)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "work" / "kept").glob("*-kill-and-replace-1"))


def test_the_catalogue_is_listed_and_shown(cli: Cli) -> None:
    listed = json.loads(cli("faults", "--json").stdout)
    assert set(listed) == set(content.names("faults"))
    assert "all workers of zone b" in cli("faults", "show", "zone-loss").stdout
    assert 'kind = "kill"' in cli("faults", "show", "zone-loss", "--toml").stdout


def test_the_doctor_finds_this_machine_fit(cli: Cli) -> None:
    done = cli("doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert all(check["ok"] for check in json.loads(done.stdout) if check.get("needed", True))


def test_a_full_disk_is_one_clear_message(
    cli: Cli, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=400", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root alone")
    request.addfinalizer(lambda: subprocess.run(["umount", str(small)], check=True))
    done = cli("attack", QUICK, "--trainer", "minimal", "--runs", small)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert cli("cleanup").stdout == "nothing to heal\n"


@pytest.mark.parametrize(
    "turn", [*range(6), *(pytest.param(turn, marks=pytest.mark.soak) for turn in range(6, 20))]
)
def test_sigkill_at_any_moment_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Within 5 s no process of the run lives; the next start, elsewhere, says what was healed."""
    state = tmp_path / "state"
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(state))
    delay_s = random.Random(turn).uniform(0.3, 6.0)
    with attacking(tmp_path, "--seed", str(turn), schedule="sudden-kill") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay_s)
        began = bool(of_run(state)[1:])
        process.kill()
        process.wait()
        assert within(5.0, lambda: of_run(state) == []), of_run(state)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = subprocess.run(
        [CHAOSSPOT, "cleanup"], cwd=elsewhere, capture_output=True, text=True, check=True
    ).stdout
    runs = list((tmp_path / "work").glob("runs/2*"))
    if began:
        assert runs
        assert str(runs[0]) in told
    assert not list((state / "leases").glob("[!.]*"))


def test_the_next_attack_names_what_it_healed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOSSPOT_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "elsewhere").mkdir()
    with attacking(tmp_path / "elsewhere", "--seed", "1") as process:
        read_until(process, "committed by")
        process.kill()
    assert within(5.0, lambda: of_run(tmp_path / "state") == [])
    done = cli("attack", QUICK, "--trainer", "minimal", "--seed", 1)
    assert done.returncode == 0
    assert "healed what a dead run left" in done.stderr
    assert str(tmp_path / "elsewhere") in done.stderr.replace("\n", "")


def test_a_pipe_is_not_held_open_by_the_guardian(tmp_path: Path) -> None:
    """``chaosspot attack | tee log`` must end when the attack is killed."""
    read, write = os.pipe()
    work = tmp_path / "work"
    work.mkdir()
    process = subprocess.Popen(
        [CHAOSSPOT, "attack", QUICK, "--trainer", "minimal"], cwd=work, stdout=write, stderr=write
    )
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        while b"committed by" not in stream.readline():
            assert process.poll() is None
        process.kill()
        process.wait()
        killed_t = time.monotonic()
        stream.read()
    assert time.monotonic() - killed_t < 3.0
