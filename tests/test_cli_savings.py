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


@pytest.mark.long
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
    seen = json.loads(done.stdout)["seen"]
    assert [risk["model"] for risk in seen["risks"]] == ["as seen", "beta-binomial", "common shock"]
    assert seen["risks"][2]["p_all"] == pytest.approx(seen["risks"][0]["p_all"])


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
        (["--discount", "nan", "--rework", 0.05], "discount = nan: at least 0 and below 1"),
        (["--discount", 0.65, "--rework", "inf"], "rework = inf: at least 0 and finite"),
        (["--discount", 0.65, "--rework", 0.05, "--on-demand-rate", ""], "rate '': a number"),
        (["--discount", 0.65, "--trace", EIGHT, *COSTS, "--time-unit", "s"], "events say their"),
        (["--discount", 0.65, "--trace", EIGHT, *COSTS, "--survives-nodes", 1], "survives_nodes"),
        (["--discount", 0.65, "--mtbi-h", 1e-6, *COSTS], "never finished"),
        (
            ["--placement", FIXTURES / "three-zones.toml", "--discount-source", "a list"],
            "has prices of its own",
        ),
        (
            ["--discount", 0.65, "--rework", 0.05, "--plot", "/nowhere/a.svg"],
            "cannot write '/nowhere/a.svg'",
        ),
    ],
)
def test_bad_input_gives_one_clear_line_and_exits_2(argv: list[object], message: str) -> None:
    assert message in refused("savings", *argv).stderr


@pytest.mark.parametrize(
    "option",
    [
        *(["--one-means", "available"], ["--time-unit", "s"], ["--held"], ["--licence", "MIT"]),
        *(["--nodes", 3], ["--min-nodes", 3], ["--reserved-nodes", 1], ["--fallback"]),
        *(["--bill-waiting"], ["--survives-nodes", 1], ["--join-s", 0], ["--storage", 0]),
        *(["--egress", 3], ["--starts", 8], ["--samples", 1000], ["--seed", 0]),
    ],
    ids=lambda option: option[0],
)
def test_what_is_about_traces_is_refused_without_one(option: list[object]) -> None:
    """Also where it says what would be the case anyway: it was said for a reason."""
    for basis in (["--rework", 0.05], ["--mtbi-h", 1, *COSTS]):
        message = refused("savings", "--discount", 0.65, *basis, *option).stderr
        assert f"{option[0]} does not apply without --trace" in message


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--stall-s", 0], "without --trace or --mtbi-h or --placement"),
        (["--interval-s", "auto"], "without --trace or --mtbi-h or --placement"),
        (["--noticed", 0.5], "without --runs"),
        (["--step-s", 2], "without --runs"),
        (["--reserved-rate", 1], "without --reserved-nodes"),
    ],
)
def test_what_would_change_nothing_is_refused(option: list[object], message: str) -> None:
    done = refused("savings", "--discount", 0.65, "--rework", 0.05, *option)
    assert f"{option[0]} does not apply {message}" in done.stderr


def test_an_assumed_rework_leaves_no_room_for_costs() -> None:
    asked = ("--placement", FIXTURES / "three-zones.toml", "--rework", 0.05, "--restart-s", 0)
    assert (
        "--restart-s does not apply: --rework 0.05 says it all" in refused("savings", *asked).stderr
    )


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("0,3\n1e999,4\n", ["--time-unit", "s"]),
        ("0,3\nnan,4\n", ["--time-unit", "s"]),
        ("0,3\n10,1e30\n", ["--time-unit", "s"]),
        (f"0,add,a\n{'9' * 400},add,b\n", []),
        ('{"metadata": {"gap_seconds": 60}, "data": [99999999999999999999, 2]}', []),
        ('{"metadata": {"gap_seconds": 60}, "data": [-1, 2]}', []),
        ('{"metadata": {"gap_seconds": 60}, "data": [0, 0]}', ["--one-means", "available"]),
    ],
)
def test_a_trace_with_numbers_that_cannot_be_is_refused(
    tmp_path: Path, text: str, options: list[object]
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    asked = ("savings", "--discount", 0.65, "--trace", path, *COSTS, *options)
    assert str(path) in refused(*asked).stderr


def test_a_picture_that_cannot_be_made_leaves_no_answer_and_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("mine")
    (tmp_path / "a.svg").mkdir()
    asked = ("savings", "--discount", 0.65, "--rework", 0.05, "--plot")
    assert "a name that ends in .svg or .png" in refused(*asked, tmp_path / "a.pdf").stderr
    assert "there is something that is no file" in refused(*asked, tmp_path / "a.svg").stderr
    assert (tmp_path / "a.pdf").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "a.svg"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([FIXTURES / "three-zones.toml", "--tick-s", 60], "--tick-s does not apply without --tr"),
        ([FIXTURES / "three-zones.toml", "--keep", "--survive", "zone"], "--keep moves no node"),
        ([FIXTURES / "three-zones.toml", "--nodes", 10_001], "nodes = 10001: at most 10000"),
        ([FIXTURES / "three-zones.toml", "--at-least-lost", 17], "at_least_lost = 17: 16 nodes"),
        ([FIXTURES / "three-zones.toml", "--write", "/dev/full"], "cannot write '/dev/full'"),
        ([FIXTURES / "three-zones.toml", "--write", "/nowhere/a"], "No such file or directory"),
        (
            [FIXTURES / "three-zones.toml", "--trace", EIGHT, "--tick-s", 1e-9],
            "tick_s = 1e-09: more than 100,000,000 ticks",
        ),
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
