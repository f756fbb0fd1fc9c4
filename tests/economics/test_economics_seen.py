"""What a trace shows of losses in bulk, beside the models that were fitted to it."""

from __future__ import annotations

import numpy as np
import pytest

from chaosspot.economics.seen import seen_in
from chaosspot.traces.trace import Trace


def trace_of(lost: list[int], nodes: int = 4) -> Trace:
    """A tick of a second each: nodes are lost in the middle and back at the end."""
    times, counts, gone = [0.0], [nodes], [0]
    for second, number in enumerate(lost):
        if number:
            times += [second + 0.5, second + 0.9]
            counts += [nodes - number, nodes]
            gone += [number, 0]
    return Trace(
        name="drawn",
        times_s=np.array(times),
        counts=np.array(counts),
        lost=np.array(gone),
        end_s=float(len(lost)),
        held=True,
    )


def test_what_is_seen_is_counted() -> None:
    seen = seen_in(trace_of([0, 1, 0, 4, 2, 0, 0, 0, 4]), tick_s=1)
    itself, _, shock = seen.risks
    assert (seen.nodes, seen.ticks) == (4, 9)
    assert itself.p_any == pytest.approx(4 / 9)
    assert itself.p_at_least == pytest.approx(3 / 9)
    assert itself.p_all == pytest.approx(2 / 9)
    assert itself.mean_lost == pytest.approx(11 / 9)
    assert (shock.p_any, shock.p_all) == pytest.approx((itself.p_any, itself.p_all))


def test_no_shock_is_made_up_where_nodes_go_one_by_one() -> None:
    seen = seen_in(trace_of([0, 1, 0, 1, 1, 0]), tick_s=1)
    assert [risk.model for risk in seen.risks] == ["as seen", "beta-binomial"]


def test_without_a_tick_that_begins_with_all_nodes_nothing_is_said() -> None:
    trace = trace_of([1, 1])
    assert seen_in(trace, tick_s=50).risks == ()
