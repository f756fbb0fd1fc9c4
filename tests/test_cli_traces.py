"""Traces on the command line: what is said, what is refused, and attacks with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from commands import Cli, cli_in
from typer.testing import CliRunner

from chaosspot import history as h
from chaosspot import schedule, toml
from chaosspot.cli import app
from chaosspot.content import content_root
from chaosspot.schedule import Grow, Kill, Schedule

FIXTURES = content_root() / "fixtures" / "traces"
PUBLIC = Path(os.environ.get("CHAOSSPOT_TRACES") or content_root().parent / "shared" / "traces")
ROUGH = str(FIXTURES / "rough-hour.csv")
ZONE = str(FIXTURES / "one-zone.json")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.parametrize("command", [["attack", "--trace"], ["faults", "from-trace"]])
@pytest.mark.parametrize(
    ("trace", "options", "message"),
    [
        (ROUGH, ["--speed", "0"], "speed = 0.0: above 0 and finite"),
        (ROUGH, ["--from", "soon"], "--from 'soon': a number of seconds"),
        (ROUGH, ["--from", "50m", "--to", "40m"], "no part from 3000.0 s to 2400.0 s"),
        (ROUGH, ["--to", "2h"], "to 7200 s is after its end at 3600 s"),
        (ROUGH, ["--nodes", "0"], "--nodes 0: at least 1"),
        (ROUGH, ["--one-means", "unavailable"], "events say what they mean"),
        (ZONE, [], "say one_means, available or unavailable"),
        (ZONE, ["--one-means", "available"], "is its polarity right"),
        (str(FIXTURES / "dwindling.csv"), [], "say time_unit, ms, s or h"),
        ("no-such.csv", [], "cannot read the trace 'no-such.csv'"),
    ],
)
def test_a_trace_that_cannot_be_used_is_one_clear_error(
    command: list[str], trace: str, options: list[str], message: str
) -> None:
    done = CliRunner().invoke(app, [*command, trace, *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert done.output.count("chaosspot:") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sudden-kill", "--speed", "60"], "--speed 60.0: it is of a trace (--trace)"),
        (["sudden-kill", "--trace", ROUGH], "exclude another"),
        ([], "Missing argument: schedules, or --trace FILE"),
    ],
)
def test_options_of_traces_go_with_a_trace(argv: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["attack", *argv])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_schedule_can_be_made_of_a_trace(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["faults", "from-trace", ROUGH, "--nodes", "8"])
    assert shown.exit_code == 0, shown.output
    path = tmp_path / "rough.toml"
    argv = ["faults", "from-trace", ROUGH, "--nodes", "8", "--output", str(path)]
    assert CliRunner().invoke(app, argv).exit_code == 0
    _, plan = schedule.load(str(path))
    assert plan == toml.loads(shown.stdout, Schedule)
    assert sum(isinstance(fault, Kill) for fault in plan.fault) >= 4


def attacked(cli: Cli, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """An attack with a trace that is gone afterwards: its run directory and its verdict."""
    trace = tmp_path / "work" / "mine.csv"
    trace.write_text("0,4\n60,4\n60,2\n120,2\n120,3\n180,3\n180,4\n240,4\n")
    argv = ["attack", "--trace", "mine.csv", "--time-unit", "s", "--speed", "60", "--seed", 3]
    done = cli(*argv, "--trainer", "minimal", "--json")
    trace.unlink()
    assert done.returncode == 0, done.stderr
    (verdict,) = json.loads(done.stdout)["verdicts"]
    return tmp_path / "work" / "runs" / "latest", verdict


@pytest.mark.long
def test_an_attack_with_a_trace_leaves_the_schedule_that_it_was(cli: Cli, tmp_path: Path) -> None:
    run, verdict = attacked(cli, tmp_path)
    plan = schedule.read(run / "schedule.toml")
    assert "mine.csv from 0 h" in plan.title
    kill, first, _ = plan.fault
    assert isinstance(kill, Kill)
    assert isinstance(first, Grow)
    assert kill.resolved is not None
    assert len(kill.resolved.nodes) == 2
    counts = [nodes for _, nodes in verdict["measured"]["nodes_over_time"]]
    assert counts[-4:] == [2, 3, 4, 4]


@pytest.mark.soak
def test_it_replays_without_the_trace(cli: Cli, tmp_path: Path) -> None:
    run, _ = attacked(cli, tmp_path)
    replayed = cli("replay", run.resolve())
    assert replayed.returncode == 0, replayed.stderr
    assert "the verdict matched" in replayed.stdout
    hit = [
        [r.nodes for r in h.read(path / "history.jsonl") if isinstance(r, h.FaultInjected)]
        for path in sorted((tmp_path / "work" / "runs").glob("2*"))
    ]
    assert len(hit) == 2
    assert hit[0] == hit[1]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("trace", "part"),
    [
        ("parcae/aws/traces/bert/trace_hh_55_65.txt", []),
        ("bamboo/traces/p3-trace.csv", ["--from", "0.5h", "--to", "1.5h"]),
    ],
)
def test_the_reference_trainer_survives_an_hour_of_a_public_trace(
    cli: Cli, trace: str, part: list[str]
) -> None:
    """In a minute, on eight nodes; what it cost is in the verdict."""
    path = PUBLIC / trace
    if not path.is_file():
        pytest.skip(f"the public trace {trace} is not here; CHAOSSPOT_TRACES says where to look")
    argv = ["--trace", path, *part, "--speed", 60, "--nodes", 8, "--seed", 1, "--json"]
    done = cli("attack", *argv, timeout_s=800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    (verdict,) = json.loads(done.stdout)["verdicts"]
    measured = verdict["measured"]
    assert max(nodes for _, nodes in measured["nodes_over_time"]) <= 8
    assert measured["goodput"] > 0
    assert measured["rework_steps"] is not None
