"""``chaosspot savings`` and ``chaosspot place`` as users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import QUICK, Cli, cli_in
from typer.testing import CliRunner, Result

from chaosspot.cli import app
from chaosspot.content import content_root

FIXTURES = content_root() / "fixtures" / "economics"
EIGHT = FIXTURES / "eight-nodes.csv"
COSTS = ("--stall-s", 2, "--restart-s", 90, "--interval-s", 120)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def refused(*argv: object) -> Result:
    """The command in this process: a start of Python for each bad value would take long."""
    done = CliRunner().invoke(app, [str(word) for word in argv])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    return done


def test_the_fields_formula_gives_63_25_per_cent(cli: Cli) -> None:
    done = cli("savings", "--discount", 0.65, "--rework", 0.05)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[:3] == ["net", "savings", "63.25%"]


def test_attacks_are_measured_and_replayed_on_a_trace(cli: Cli, tmp_path: Path) -> None:
    """From an attack to a figure with its interval: two commands."""
    attacked = cli("attack", QUICK, "--trainer", "minimal", "--seed", 1)
    assert attacked.returncode == 0, attacked.stderr
    asked = ("savings", "--discount", 0.65, "--runs", "runs", "--trace", EIGHT)
    done = cli(*asked, "--licence", "ours", "--json", "--plot", "savings.svg")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    seen, trace = found["measured"], found["on_trace"]
    assert (seen["trainer"], seen["runs"], seen["events"]) == ("minimal", 1, 1)
    assert 0 < seen["restart_s"] < 60
    assert found["costs"]["restart_s"] == pytest.approx(seen["restart_s"])
    interval = trace["net_savings"]
    assert interval["low"] <= found["net_savings"] <= interval["high"] < 0.65
    assert trace["assumed_net_savings"] == pytest.approx(0.6325)
    assert trace["ledger"]["run_source"]
    assert trace["licence"] == "ours"
    assert (tmp_path / "work" / "savings.svg").read_text().startswith("<?xml")
    shown = cli(*asked)
    assert "nothing is extrapolated" in " ".join(shown.stdout.split())


def test_a_placement_is_chosen_written_and_billed(cli: Cli) -> None:
    placed = cli("place", FIXTURES / "three-zones.toml", "--write", "placed.toml")
    assert placed.returncode == 0, placed.stderr
    for text in ("survived: 8 nodes", "effective pools", "independent nodes", "common shocks"):
        assert text in placed.stdout
    done = cli("savings", "--placement", "placed.toml", "--rework", 0.05, "--json")
    assert done.returncode == 0, done.stderr
    cost = (16 * 1.07 + 1.84) * 1.05
    assert json.loads(done.stdout)["net_savings"] == pytest.approx(1 - cost / (17 * 3.06))


def test_what_places_nodes_takes_losses_from_a_trace(cli: Cli) -> None:
    done = cli("place", FIXTURES / "three-zones.toml", "--trace", EIGHT, "--tick-s", 600, "--json")
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout)["placement"]["losses"]
    assert losses["tick_s"] == 600
    assert "eight-nodes.csv" in losses["source"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--discount", 1.0, "--rework", 0.05], "discount = 1.0: at least 0 and below 1"),
        (["--discount", -0.1, "--rework", 0.05], "discount = -0.1: at least 0 and below 1"),
        (
            ["--discount", 0.65, "--rework", 0.05, "--placement", FIXTURES / "three-zones.toml"],
            "has prices of its own: say no discount or rate",
        ),
        (["--rework", 0.05], "say a discount, or the rates"),
        (["--discount", 0.65], "nothing to go by"),
        (["--discount", 0.65, "--trace", EIGHT, *COSTS[:3], -1, *COSTS[4:]], "restart_s = -1.0"),
        (["--discount", 0.65, "--trace", FIXTURES / "README.md", *COSTS], "unknown format"),
        (["--discount", 0.65, "--trace", FIXTURES / "one-zone.json", *COSTS], "say one_means"),
        (
            ["--spot-rate", "1 EUR", "--on-demand-rate", "3", "--rework", 0.05],
            "rates in different currencies: EUR, USD",
        ),
        (["--discount", 0.65, "--trace", EIGHT, *COSTS[:5], "often"], "interval_s = 'often'"),
    ],
)
def test_bad_input_gives_one_clear_line_and_exits_2(argv: list[object], message: str) -> None:
    assert message in refused("savings", *argv).stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([FIXTURES / "three-zones.toml", "--min-nodes", 13], "13 of 16 nodes must be left"),
        ([FIXTURES / "three-zones.toml", "--survive", "moon"], "survive = 'moon': valid: zone"),
        ([FIXTURES / "three-zones.toml", "--min-nodes", 17], "min_nodes = 17: at most nodes = 16"),
        (["nowhere.toml"], "cannot read 'nowhere.toml'"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(argv: list[object], message: str) -> None:
    assert message in refused("place", *argv).stderr


def test_an_empty_folder_of_runs_is_named(tmp_path: Path) -> None:
    message = f"{str(tmp_path)!r} holds no runs"
    assert message in refused("savings", "--discount", 0.65, "--runs", tmp_path).stderr
