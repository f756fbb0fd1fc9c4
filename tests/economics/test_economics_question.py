"""One question, one answer: which basis the headline has, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from chaosspot import toml
from chaosspot.content import content_root
from chaosspot.economics.interval import best_interval_s
from chaosspot.economics.measured import Measured
from chaosspot.economics.money import Amount
from chaosspot.economics.placement import Placement
from chaosspot.economics.plot import draw
from chaosspot.economics.prices import of_placement, prices
from chaosspot.economics.question import Question, answer
from chaosspot.economics.savings import Savings, rows
from chaosspot.economics.scaling import JobSize
from chaosspot.economics.spreading import spread
from chaosspot.traces import load

FIXTURES = content_root() / "fixtures" / "economics"
TRACE = load(FIXTURES / "eight-nodes.csv")
MEASURED = Measured(
    trainer="reference",
    runs=2,
    left_out=1,
    nodes=4,
    min_nodes=1,
    events=2,
    restart_s=2.0,
    worst_restart_s=20.0,
    join_s=4.0,
    stall_s=0.01,
    stalls_seen=40,
    lost_steps=0.5,
    step_s=0.5,
    state_bytes=10_000_000,
    snapshot_every_steps=10,
    peers_hold_state=True,
    notices=2,
    notices_kept=1,
    flush_s=0.5,
    billed_node_s=110.0,
    run_node_s=100.0,
    split_node_s={},
    run_source="the undisturbed twins of 2 attacks",
)
COSTS = {"stall_s": 2.0, "restart_s": 90.0, "interval_s": 120.0}


def ask(**given: Any) -> Savings:
    asked = Question(**{"prices": prices(discount=0.65), "samples": 200, **given})
    return answer(asked, np.random.default_rng(0))


def shown(found: Savings) -> dict[str, str]:
    return dict(rows(found))


def test_ratios_alone_give_the_fields_figure() -> None:
    found = ask(rework=0.05)
    assert found.net_savings == pytest.approx(0.6325)
    assert shown(found)["net savings"] == "63.25% (rework as assumed)"
    assert shown(found)["break-even rework"] == "185.7%"


def test_attacks_alone_say_what_their_twins_took() -> None:
    found = ask(measured=MEASURED)
    assert found.rework == pytest.approx(0.1)
    assert found.net_savings == pytest.approx(1 - 0.35 * 1.1)
    assert "T_run: the undisturbed twins of 2 attacks" in found.basis
    assert "1 that did not pass left out" in shown(found)["measured"]
    assert "5% rework: net savings 63.25%" in shown(found)["assumed by the field"]


def test_attacks_without_twins_give_no_savings() -> None:
    found = ask(measured=replace(MEASURED, run_node_s=None))
    assert found.net_savings is None
    assert shown(found)["net savings"].startswith("not known: the attacks have no twins")


def test_attacks_that_took_no_longer_than_their_twins_do_not_prove_that_nothing_is_lost() -> None:
    found = ask(measured=replace(MEASURED, run_node_s=120.0))
    assert (found.rework, found.net_savings) == (None, None)
    assert "too short to tell" in shown(found)["net savings"]


def test_attacks_on_a_trace_are_the_measured_job_and_nothing_larger() -> None:
    found = ask(measured=MEASURED, trace=TRACE)
    assert found.on_trace is not None
    assert found.net_savings == pytest.approx(found.on_trace.net_savings.value)
    assert found.worst_restart is not None
    assert found.worst_restart < found.net_savings
    assert "nothing is extrapolated" in shown(found)["costs"]
    assert "95% " in shown(found)["net savings"]
    assert "useful node-hours of the replay" in shown(found)["T_run"]


def test_a_larger_job_on_a_trace_saves_less() -> None:
    size = JobSize(state_bytes=20e9, bandwidth_bytes_per_s=2e9, step_s=10.0)
    found = ask(measured=MEASURED, trace=TRACE, size=size, interval_s="auto")
    small = ask(measured=MEASURED, trace=TRACE, interval_s="auto")
    assert found.net_savings is not None
    assert small.net_savings is not None
    assert found.net_savings < small.net_savings
    assert "20 GB of state a node at 2 GB/s and a step of 10 s as stated" in shown(found)["costs"]


def test_given_costs_need_no_attacks() -> None:
    found = ask(trace=TRACE, **COSTS)
    assert found.on_trace is not None
    assert found.on_trace.ledger.discount_source == "65.0% as given, not a price seen"
    assert "a gang of 8 nodes" in found.basis


def test_the_best_interval_is_that_of_the_traces_interruptions() -> None:
    found = ask(trace=TRACE, **(COSTS | {"interval_s": "auto"}))
    assert found.costs is not None
    assert found.on_trace is not None
    often_s = found.on_trace.mtbi_h * 3600
    assert found.costs.interval_s == pytest.approx(best_interval_s(stall_s=2.0, mtbi_s=often_s))


def test_independent_interruptions_meet_the_closed_form() -> None:
    found = ask(mtbi_h=1.0, stall_s=60.0, restart_s=600.0, interval_s="auto")
    assert found.net_savings == pytest.approx(0.50085, abs=1e-5)
    assert found.at_interval is not None
    assert found.at_interval.best == pytest.approx(found.net_savings)
    assert "stalls of snapshots alone cost more" in shown(found)["  5% rework"]
    rare = ask(mtbi_h=1.0, stall_s=60.0, restart_s=600.0, interval_s=1800.0)
    assert "interruptions 25 h apart" in shown(rare)["  5% rework"]


def placement() -> Placement:
    return spread(toml.read(FIXTURES / "three-zones.toml", Placement))


def test_a_placement_is_billed_pool_by_pool() -> None:
    placed = placement()
    found = ask(prices=of_placement(placed), placement=placed, rework=0.05)
    cost = (16 * 1.07 + 1.84) * 1.05
    assert found.net_savings == pytest.approx(1 - cost / (17 * 3.06))
    assert found.placement is not None
    assert found.placement.by_class() == pytest.approx({"spot": 17.976, "reserved": 1.932})


def test_a_placement_says_itself_how_often_it_loses_nodes() -> None:
    placed = placement()
    found = ask(prices=of_placement(placed), placement=placed, **COSTS)
    assert found.at_interval is not None
    assert 0.3 < found.at_interval.mtbi_h < 0.7
    assert found.rework == pytest.approx(found.at_interval.rework)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing to go by"),
        ({"rework": -0.1}, r"rework = -0\.1: at least 0"),
        ({"rework": 0.05, "trace": TRACE}, r"rework = 0\.05 is assumed"),
        ({"rework": 0.05, "measured": MEASURED}, r"rework = 0\.05 is assumed"),
        ({"trace": TRACE}, "stall_s, restart_s, interval_s not known"),
        ({"trace": TRACE, **COSTS, "stall_s": -1.0}, r"stall_s = -1\.0: at least 0"),
        ({"trace": TRACE, **COSTS, "nodes": 4, "min_nodes": 5}, "min_nodes = 5: at most nodes = 4"),
        ({"rework": 0.1, "egress": Amount(value=3)}, "3 USD of storage or egress: of which trace"),
        ({"mtbi_h": 0.0, **COSTS}, r"mtbi_h = 0\.0: above 0"),
        ({"mtbi_h": 1.0, "placement": placement(), **COSTS}, r"mtbi_h = 1\.0: a placement says"),
        (
            {"size": JobSize(state_bytes=1, bandwidth_bytes_per_s=1, step_s=1), "rework": 0.1},
            "no --runs to work out its costs from",
        ),
        ({"measured": MEASURED, "trace": TRACE, "noticed": 1.5}, r"noticed = 1\.5: at least 0"),
    ],
)
def test_what_cannot_be_answered_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(**given)


def test_nodes_that_have_no_place_have_no_bill() -> None:
    plan = toml.read(FIXTURES / "three-zones.toml", Placement)
    with pytest.raises(ValueError, match="no nodes on spot: choose where with chaosspot place"):
        of_placement(plan)


@pytest.mark.parametrize("name", ["savings.svg", "savings.png"])
def test_a_picture_is_drawn_of_what_there_is(tmp_path: Path, name: str) -> None:
    found = ask(trace=TRACE, **COSTS)
    draw(found, tmp_path / name, trace=TRACE)
    data = (tmp_path / name).read_bytes()
    if name.endswith(".png"):
        assert data.startswith(b"\x89PNG")
        return
    for text in (b"Net savings over rework", b"Bill by node class", b"Nodes over time", b"spot"):
        assert text in data
    draw(found, tmp_path / "again.svg", trace=TRACE)
    assert (tmp_path / "again.svg").read_bytes() == data


def test_a_picture_of_ratios_has_one_panel(tmp_path: Path) -> None:
    draw(ask(rework=0.05), tmp_path / "a.svg")
    data = (tmp_path / "a.svg").read_bytes()
    assert b"Net savings over rework" in data
    assert b"Bill by node class" not in data


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a name that ends in \.svg or \.png"):
        draw(ask(rework=0.05), tmp_path / "a.pdf")
    with pytest.raises(ValueError, match=r"cannot write .*: No such file"):
        draw(ask(rework=0.05), tmp_path / "nowhere" / "a.svg")


def test_without_matplotlib_a_picture_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"pip install 'chaosspot\[plot\]'"):
        draw(ask(rework=0.05), tmp_path / "a.svg")
