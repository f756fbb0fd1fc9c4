"""A job replayed on a trace, and how far the result can be trusted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosspot.economics.bootstrap import ratio_interval
from chaosspot.economics.estimate import ledger_of, mtbi_s, on_trace
from chaosspot.economics.interval import Costs
from chaosspot.economics.ledger import net_savings
from chaosspot.economics.money import Amount, Rate
from chaosspot.economics.prices import prices
from chaosspot.economics.replay import Job, Replay, replay
from chaosspot.traces.trace import Trace, TraceError
from chaosspot.trainer.cadence import time_factor

PLAIN = Costs(interval_s=100, stall_s=10, restart_s=50)
DISCOUNT = prices(discount=0.65)


def trace_of(
    steps: list[tuple[float, int]], end_s: float, lost: dict[float, int] | None = None
) -> Trace:
    """Counts from given times on; drops are losses, and ``lost`` are further ones."""
    counts = np.array([count for _, count in steps])
    drops = np.maximum(0, -np.diff(counts, prepend=counts[0]))
    more = np.array([(lost or {}).get(time, 0) for time, _ in steps])
    return Trace(
        name="made up",
        times_s=np.array([float(time) for time, _ in steps]),
        counts=counts,
        lost=drops + more,
        end_s=end_s,
        held=True,
    )


def gang(nodes: int, costs: Costs = PLAIN, **changes: Any) -> Job:
    return Job(**{"nodes": nodes, "min_nodes": nodes, "costs": costs, **changes})


def parts(done: Replay) -> dict[str, float]:
    return {
        "useful": round(float(done.useful_node_s.sum()), 6),
        "lost": round(float(done.lost_node_s.sum()), 6),
        "restart": round(float(done.restart_node_s.sum()), 6),
        "stall": round(float(done.stall_node_s.sum()), 6),
        "idle": round(float(done.idle_node_s.sum()), 6),
    }


def test_a_gang_uses_its_full_spells_and_nothing_else() -> None:
    """1000 s full, 500 s short, 165 s full: 8 and 1 segments of 110 s after a restart of 50 s."""
    done = replay(trace_of([(0, 4), (1000, 3), (1500, 4)], 1665), gang(4))
    assert done.useful_node_s.tolist() == pytest.approx([4 * 800, 4 * 100])
    assert parts(done) == {"useful": 3600, "lost": 4 * 75, "restart": 400, "stall": 360, "idle": 0}
    assert (done.running_s, done.waiting_s) == (1165, 500)
    assert (done.events, done.nodes_lost, done.spells) == (1, 1, 2)
    assert done.rework_ratio == pytest.approx((4 * 1165 - 3600) / 3600)


def test_a_gang_that_keeps_its_nodes_is_billed_for_the_survivors() -> None:
    done = replay(
        trace_of([(0, 2), (300, 4), (1300, 3), (1800, 4)], 1965), gang(4, bill_waiting=True)
    )
    assert parts(done)["idle"] == 300 * 2 + 500 * 3
    assert done.billed_node_s.sum() == pytest.approx(600 + 4000 + 1500 + 4 * 165)


def test_an_event_interrupts_once_however_many_nodes_it_takes() -> None:
    one = replay(trace_of([(0, 8), (1000, 7)], 2000), gang(8, min_nodes=1))
    many = replay(trace_of([(0, 8), (1000, 4)], 2000), gang(8, min_nodes=1))
    assert one.spells == many.spells == 2
    assert (one.nodes_lost, many.nodes_lost) == (1, 4)
    assert one.restart_node_s[0] == many.restart_node_s[0]
    assert one.restart_node_s[1] / 7 == many.restart_node_s[1] / 4


def test_survivors_go_on_and_a_node_that_comes_joins_them() -> None:
    """At 1000 s one of four goes, at 1500 s one comes: 3 nodes for 450 s, then 4 for 550 s."""
    trace = trace_of([(0, 4), (1000, 3), (1500, 4)], 2040)
    done = replay(trace, gang(4, min_nodes=1))
    computed = 450 * 3 + 540 * 4
    assert done.useful_node_s[1] + done.stall_node_s[1] == pytest.approx(computed)
    assert done.restart_node_s[1] == 50 * 3
    late = replay(trace, gang(4, min_nodes=1, joins="at-restart"))
    assert late.billed_node_s[1] == 1040 * 3


def test_a_node_that_joins_is_billed_before_it_works() -> None:
    trace = trace_of([(0, 4), (1000, 3), (1500, 4)], 2040)
    slow = Costs(interval_s=100, stall_s=10, restart_s=50, join_s=30)
    at_once = replay(trace, gang(4, min_nodes=1))
    joining = replay(trace, gang(4, slow, min_nodes=1))
    assert joining.useful_node_s[1] == pytest.approx(at_once.useful_node_s[1] - 30)
    assert joining.restart_node_s[1] == pytest.approx(at_once.restart_node_s[1] + 30)
    assert joining.billed_node_s.sum() == pytest.approx(at_once.billed_node_s.sum())


def test_a_loss_that_was_made_up_for_at_once_interrupts_all_the_same() -> None:
    done = replay(trace_of([(0, 4), (1000, 4)], 2000, lost={1000: 1}), gang(4))
    assert done.spells == 2


def test_peers_that_hold_the_state_spare_all_but_what_is_in_flight() -> None:
    trace = trace_of([(0, 4), (155, 3)], 155 + 50 + 110)
    costs = Costs(interval_s=100, stall_s=10, restart_s=50, lost_s=5)
    done = replay(trace, gang(4, costs, min_nodes=1))
    # 105 s after the restart: all of an interval, of whose stall 5 s were left
    assert parts(replay(trace, gang(4, min_nodes=1)))["lost"] == 4 * 100
    assert done.lost_node_s[0] == pytest.approx(4 * 5)
    assert done.useful_node_s[0] == pytest.approx(4 * 95)
    assert done.stall_node_s[0] == pytest.approx(4 * 5)


@pytest.mark.parametrize(
    ("survives", "left", "lost_s"), [(None, 1, 5), (3, 1, 5), (2, 1, 60), (None, 0, 60)]
)
def test_peers_do_not_hold_it_when_too_many_go(
    survives: int | None, left: int, lost_s: float
) -> None:
    """Four nodes, of which ``left`` are left after 110 s: 60 s into the first interval."""
    trace = trace_of([(0, 4), (110, left)], 500)
    costs = Costs(interval_s=100, stall_s=10, restart_s=50, lost_s=5)
    done = replay(trace, gang(4, costs, min_nodes=1, survives_nodes=survives))
    assert done.lost_node_s[0] == pytest.approx(4 * lost_s)


def test_a_kept_notice_costs_the_flush() -> None:
    trace = trace_of([(0, 4), (110, 3)], 500)
    costs = Costs(interval_s=100, stall_s=10, restart_s=50, flush_s=8, flushed=0.75)
    assert replay(trace, gang(4, costs)).lost_node_s[0] == pytest.approx(4 * (0.75 * 8 + 15))


def test_on_demand_nodes_stand_in_so_that_it_never_waits() -> None:
    done = replay(trace_of([(0, 4), (1000, 1)], 2000), gang(4, fallback=True))
    assert done.waiting_s == 0
    assert done.on_demand_node_s.tolist() == [0, 3000]
    assert done.billed_node_s.tolist() == pytest.approx([4000, 4000])
    bill = ledger_of(done, DISCOUNT, run_source="here")
    hours = {line.node_class: line.billed_node_h * 3600 for line in bill.lines}
    assert hours == pytest.approx({"spot": 5000, "on-demand": 3000})


def test_reserved_nodes_are_billed_while_they_wait() -> None:
    done = replay(trace_of([(0, 3), (1000, 0)], 2000), gang(4, reserved_nodes=1))
    assert done.reserved_node_s.sum() == 2000
    assert parts(done)["idle"] == 1000
    assert done.billed_node_s.sum() == 5000


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["at-once", "at-restart"]),
)
def test_every_node_second_is_billed_once_and_accounted_for(
    steps: list[tuple[int, int]],
    nodes: int,
    least: int,
    reserved: int,
    fallback: bool,
    bill_waiting: bool,
    joins: str,
) -> None:
    times = np.cumsum([0, *[length for length, _ in steps]])
    trace = trace_of(
        list(zip(times[:-1].tolist(), [count for _, count in steps], strict=True)), float(times[-1])
    )
    if reserved >= nodes:
        return
    job = Job(
        nodes=nodes,
        min_nodes=min(least, nodes),
        costs=Costs(interval_s=20, stall_s=3, restart_s=10, join_s=5, lost_s=2),
        reserved_nodes=reserved,
        fallback=fallback,
        bill_waiting=bill_waiting,
        joins=joins,  # type: ignore[arg-type]
    )
    try:
        done = replay(trace, job)
    except TraceError:
        assert not fallback
        return
    for part in (*parts(done).values(), done.waiting_s + 1e-6, *done.on_demand_node_s):
        assert part >= 0
    assert done.running_s + done.waiting_s == pytest.approx(trace.end_s)
    assert done.reserved_node_s.sum() == pytest.approx(reserved * trace.end_s)
    spot = (done.billed_node_s - done.on_demand_node_s - done.reserved_node_s).sum()
    counted = np.minimum(trace.counts, nodes - reserved)
    most = float((counted * np.diff(np.append(trace.times_s, trace.end_s))).sum())
    assert -1e-6 <= spot <= most + 1e-6
    if bill_waiting:
        assert spot == pytest.approx(most)
    assert done.rework_ratio >= 0


@settings(max_examples=8, deadline=None)
@given(
    st.floats(60, 600), st.floats(0, 30), st.floats(0, 200), st.floats(1000, 20000), st.integers(0)
)
def test_a_gang_with_instant_replacement_meets_the_closed_form(
    interval_s: float, stall_s: float, restart_s: float, mean_s: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    number = 100_000
    drawn = (np.arange(number) + rng.random(number)) / number
    gaps_s = rng.permutation(-mean_s * np.log1p(-drawn))
    trace = Trace(
        name="poisson",
        times_s=np.concatenate([[0.0], np.cumsum(gaps_s)[:-1]]),
        counts=np.full(number, 8),
        lost=np.concatenate([[0], np.ones(number - 1, dtype=np.int64)]),
        end_s=float(gaps_s.sum()),
        held=True,
    )
    done = replay(
        trace, gang(8, Costs(interval_s=interval_s, stall_s=stall_s, restart_s=restart_s))
    )
    factor = time_factor(interval_s=interval_s, stall_s=stall_s, restart_s=restart_s, mtbi_s=mean_s)
    assert 1 + done.rework_ratio == pytest.approx(factor, rel=0.005)


def test_a_job_that_never_has_its_nodes_is_refused() -> None:
    with pytest.raises(TraceError, match="has 4 nodes at most; the job needs 8"):
        replay(trace_of([(0, 4)], 1000), gang(8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_nodes": 5}, "min_nodes = 5: at most nodes = 4"),
        ({"min_nodes": 0}, "min_nodes = 0: at least 1"),
        ({"reserved_nodes": 4}, "reserved_nodes = 4: below nodes = 4"),
    ],
)
def test_jobs_that_cannot_be_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gang(4, **changes)


LONG = trace_of([(i * 3000 + (i * i * 7) % 1900, 8 if i % 5 else 6) for i in range(100)], 300_000)


def test_savings_on_a_trace_come_with_an_interval_and_their_sources() -> None:
    found = on_trace(LONG, gang(8), DISCOUNT, np.random.default_rng(1))
    assert found.net_savings.low < found.net_savings.value < found.net_savings.high
    assert found.net_savings.value == pytest.approx(
        net_savings(discount=0.65, rework=found.rework.value)
    )
    assert found.ledger.net_savings == pytest.approx(found.net_savings.value)
    assert "useful node-hours of the replay on made up" in found.ledger.run_source
    assert "65.0% as given" in found.ledger.discount_source
    assert found.assumed_net_savings == pytest.approx(0.6325)
    assert len(found.starts) == 8
    assert found.mtbi_h == pytest.approx(mtbi_s(LONG, gang(8)) / 3600)


def test_the_same_seed_draws_the_same_interval() -> None:
    def low(seed: int) -> float:
        rng = np.random.default_rng(seed)
        return on_trace(LONG, gang(8), DISCOUNT, rng, samples=200).net_savings.low

    assert low(1) == low(1)
    assert low(1) != low(2)


def test_storage_and_egress_are_on_the_bill() -> None:
    rates = prices(spot=Rate(per_node_h=1), on_demand=Rate(per_node_h=3))
    found = on_trace(
        LONG,
        gang(8),
        rates,
        np.random.default_rng(1),
        samples=10,
        storage=Amount(value=7),
        egress=Amount(value=5),
    )
    assert found.ledger.cost == pytest.approx(found.billed_node_h + 12)
    assert found.net_savings.value == pytest.approx(found.ledger.net_savings)
    assert found.starts[0].net_savings == pytest.approx(found.ledger.net_savings)


def test_the_interval_is_of_the_whole_bill_with_every_class_at_its_own_rate() -> None:
    rates = prices(
        spot=Rate(per_node_h=1), on_demand=Rate(per_node_h=3), reserved=Rate(per_node_h=2)
    )
    job = gang(8, reserved_nodes=1, fallback=True)
    found = on_trace(LONG, job, rates, np.random.default_rng(1), samples=200)
    assert set(found.by_class) == {"spot", "on-demand", "reserved"}
    assert found.net_savings.value == pytest.approx(found.ledger.net_savings)
    assert found.net_savings.low < found.net_savings.value < found.net_savings.high


def test_a_trace_that_does_nothing_useful_says_so() -> None:
    costs = Costs(interval_s=10_000, stall_s=1, restart_s=5000)
    with pytest.raises(TraceError, match="nothing useful is done"):
        on_trace(LONG, gang(8, costs), DISCOUNT, np.random.default_rng(1))


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32))
def test_a_bootstrap_of_the_mean_is_as_wide_as_theory_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    over = rng.normal(10, 2, size=400)
    found = ratio_interval(over, np.ones(400), rng, samples=2000)
    half = 1.96 * float(over.std()) / math.sqrt(400)
    assert found.value == pytest.approx(over.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.15)


def test_an_interval_of_draws_without_use_is_infinite_above() -> None:
    found = ratio_interval(
        np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.random.default_rng(0), samples=500
    )
    assert (found.value, found.high) == (2.0, math.inf)


def test_a_draw_in_parts_is_as_large_as_was_asked() -> None:
    found = ratio_interval(
        np.ones(1_500_000), np.ones(1_500_000), np.random.default_rng(0), samples=3
    )
    assert (found.samples, found.low, found.high) == (3, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0}, "samples = 0: at least 1"),
        ({"level": 1.0}, r"level = 1\.0: above 0 and below 1"),
    ],
)
def test_draws_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ratio_interval(np.ones(3), np.ones(3), np.random.default_rng(0), **changes)
