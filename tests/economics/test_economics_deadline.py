"""A job that must be done in time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaosspot.economics.deadline import greedy, greedy_fluid

HOUR_S = 3600.0


@settings(deadline=None)
@given(st.integers(0, 10), st.floats(10, 100), st.floats(1.0, 2.0))
def test_ticks_meet_the_closed_form(tenths: int, work_h: float, slack: float) -> None:
    """Spot is there so many tenths of every ten minutes."""
    available = np.tile(np.arange(10) < tenths, 2000)
    times = {"work_s": work_h * HOUR_S, "deadline_s": work_h * slack * HOUR_S}
    done = greedy(available, tick_s=60, changeover_s=0, **times)
    fluid = greedy_fluid(spot_share=tenths / 10, **times)
    assert done.spot_s == pytest.approx(fluid.spot_s, abs=1300)
    assert done.on_demand_s == pytest.approx(fluid.on_demand_s, abs=1300)
    assert done.spot_s + done.on_demand_s == pytest.approx(work_h * HOUR_S)


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=500), st.floats(0, 1000), st.floats(3, 40))
def test_whatever_comes_the_deadline_is_kept(
    available: list[bool], changeover_s: float, work_h: float
) -> None:
    """If there is room for two changeovers and a tick."""
    work_s = work_h * HOUR_S
    deadline_s = work_s * 1.2
    assume(deadline_s > work_s + 2 * changeover_s + 600)
    done = greedy(
        np.array(available),
        tick_s=600,
        work_s=work_s,
        deadline_s=deadline_s,
        changeover_s=changeover_s,
    )
    assert done.late_s < 1e-6
    assert done.spot_s + done.on_demand_s == pytest.approx(work_s)


def test_each_start_costs_a_changeover() -> None:
    available = np.array([True, True, False, True, True, True])
    done = greedy(available, tick_s=600, work_s=1800, deadline_s=36_000, changeover_s=300)
    assert (done.spot_s, done.on_demand_s) == (1800, 0)
    assert (done.changeover_s, done.waiting_s) == (600, 600)


def test_once_on_demand_it_stays_there() -> None:
    available = np.array([False, False, False, True, True, True])
    done = greedy(available, tick_s=600, work_s=3600, deadline_s=4800, changeover_s=0)
    assert (done.waiting_s, done.on_demand_s, done.spot_s) == (1200, 3600, 0)
    assert done.late_s == 0


def test_more_spot_means_less_on_demand() -> None:
    times = {"work_s": 48 * HOUR_S, "deadline_s": 60 * HOUR_S}
    shares = [0.0, 0.2, 0.5, 0.79, 0.8, 1.0]
    spent = [greedy_fluid(spot_share=share, **times).on_demand_s for share in shares]
    assert spent == sorted(spent, reverse=True)
    assert (spent[0], spent[-2], spent[-1]) == (48 * HOUR_S, 0, 0)


def test_less_time_than_work_is_refused() -> None:
    with pytest.raises(ValueError, match=r"work_s = 20\.0: above 0 and at most deadline_s = 10\.0"):
        greedy_fluid(spot_share=0.5, work_s=20.0, deadline_s=10.0)
    with pytest.raises(ValueError, match="ticks = 0: above 0"):
        greedy(np.array([], dtype=bool), tick_s=1, work_s=1, deadline_s=2, changeover_s=0)


def test_the_safety_net_keeps_two_changeovers_free() -> None:
    done = greedy(np.array([False]), tick_s=600, work_s=3600, deadline_s=5700, changeover_s=300)
    assert (done.waiting_s, done.changeover_s, done.late_s) == (1200, 300, 0)
