"""Published figures, from public traces where they are at hand; none of them is shipped.

``CHAOSSPOT_TRACES`` names their folder; else one beside the checkout is looked for.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from chaosspot.content import content_root
from chaosspot.economics.correlation import BetaBinomial, fit_beta_binomial
from chaosspot.economics.deadline import greedy
from chaosspot.economics.interval import Costs
from chaosspot.economics.ledger import net_savings
from chaosspot.economics.replay import Job, replay
from chaosspot.traces import load
from chaosspot.traces.trace import Trace, TraceError

ROOT = Path(os.environ.get("CHAOSSPOT_TRACES") or content_root().parent / "shared" / "traces")
DISK = Costs(interval_s=1800, stall_s=60, restart_s=600)
MEMORY = Costs(interval_s=120, stall_s=2, restart_s=90)


def path_of(name: str) -> Path:
    path = ROOT / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not here; CHAOSSPOT_TRACES says where to look")
    return path


def p3() -> Trace:
    return load(path_of("bamboo/traces/p3-trace.csv"), licence="MIT")


def g4dn() -> Trace:
    return load(path_of("bamboo/traces/g4dn-trace.csv"), licence="MIT")


def test_the_p3_trace_has_79_events_that_took_167_nodes() -> None:
    """To charge each node as an event would overstate what is lost 2.1 times."""
    trace = p3()
    assert (trace.events, int(trace.lost.sum()), trace.most_nodes) == (79, 167, 32)
    assert trace.end_s == pytest.approx(11.37 * 3600, rel=1e-3)
    assert trace.mean_nodes == pytest.approx(24.0, abs=0.05)
    hit = trace.lost > 0
    assert int(trace.lost.max()) == 6
    assert trace.lost[hit].mean() == pytest.approx(2.1, abs=0.05)


def test_the_g4dn_trace() -> None:
    trace = g4dn()
    assert (trace.events, int(trace.lost.sum()), trace.most_nodes) == (48, 74, 24)
    assert trace.end_s == pytest.approx(10.63 * 3600, rel=1e-3)
    assert trace.mean_nodes == pytest.approx(12.8, abs=0.05)


def test_one_segment_of_the_p3_trace_by_the_minute() -> None:
    """From 1.5 to 2.5 h: mean nodes at a minute's end, minutes with a loss, with an addition."""
    trace = p3()
    ends_s = 5400 + np.arange(1, 61) * 60.0 - 1e-6
    assert round(float(trace.at(ends_s).mean()), 2) == 29.63
    inside = (trace.times_s >= 5400) & (trace.times_s < 9000)
    minute = (trace.times_s // 60).astype(int)
    assert len(set(minute[inside & (trace.lost > 0)])) == 6
    assert len(set(minute[inside & (trace.gained > 0)])) == 5


@pytest.mark.parametrize(
    ("read", "tick_s", "rho"),
    [(p3, 60, 0.07), (p3, 600, 0.17), (g4dn, 60, 0.08), (g4dn, 600, 0.13)],
)
def test_held_nodes_are_lost_together_but_less_than_probes_say(
    read: object, tick_s: float, rho: float
) -> None:
    assert callable(read)
    assert fit_beta_binomial(read().ticks(tick_s)).rho == pytest.approx(rho, abs=0.005)


@pytest.mark.parametrize(
    ("costs", "rework", "saved"), [(DISK, 34.2381, -11.3333), (MEMORY, 0.3255, 0.5361)]
)
def test_survivors_that_go_on_with_new_nodes_waiting_for_a_restart(
    costs: Costs, rework: float, saved: float
) -> None:
    job = Job(nodes=32, min_nodes=1, costs=costs, joins="at-restart")
    done = replay(p3(), job)
    assert done.rework_ratio == pytest.approx(rework, abs=5e-5)
    assert net_savings(discount=0.65, rework=done.rework_ratio) == pytest.approx(saved, abs=5e-5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("bamboo/traces/p3-trace.csv", "parcae/liveput/traces/p3trace.csv"),
        ("bamboo/traces/g4dn-trace.csv", "spotserve/trace_full/g4dn.csv"),
    ],
)
def test_copies_of_one_trace_are_one_observation(ours: str, theirs: str) -> None:
    one, other = load(path_of(ours)), load(path_of(theirs))
    assert one.times_s.tolist() == other.times_s.tolist()
    assert one.counts.tolist() == other.counts.tolist()


def test_a_staircase_in_milliseconds_is_the_same_trace_again() -> None:
    path = path_of("parcae/aws/traces/p3.csv")
    trace = load(path, time_unit="ms")
    assert trace.end_s == pytest.approx(p3().end_s)
    assert trace.counts.max() == 32


def test_a_log_that_steps_back_in_time_is_put_in_order() -> None:
    trace = load(path_of("bamboo/traces/gcloud/v100x1-east1c.txt"))
    assert trace.end_s == pytest.approx(24 * 3600, rel=0.01)
    assert trace.most_nodes == 80


def test_a_file_of_one_point_observed_nothing() -> None:
    folder = path_of("bamboo/traces/p3-trace.csv").parents[1] / "doc" / "data"
    name = "aws-spot-instances-p2-xlarge-us-east-1a-2020-11-20-1730-to-2020-11-21-1104.csv"
    with pytest.raises(TraceError, match="one point in time only"):
        load(folder / name, time_unit="s")


def test_every_other_file_is_read() -> None:
    path_of("bamboo/traces/p3-trace.csv")
    read = 0
    for path in sorted(ROOT.rglob("*")):
        if path.suffix not in (".csv", ".txt") or "p2-xlarge-us-east-1" in path.name:
            continue
        staircase = "doc" in path.parts or path.parent.parts[-2:] == ("aws", "traces")
        assert load(path, time_unit="s" if staircase else None).days > 0
        read += 1
    assert read > 40


def multi_node(zone: str) -> Trace:
    """One of the multi-node probe series of spot-traces, which state no licence."""
    root = ROOT / "spot-traces"
    day, name = zone.split("/")
    found = sorted(path for path in root.rglob(f"{name}*.json") if day in path.parts)
    found = [path for path in found if any("node" in part for part in path.parts)]
    if not found:
        pytest.skip(f"{zone} of spot-traces is not here; CHAOSSPOT_TRACES says where to look")
    return load(found[0])


SIXTEEN = [f"aws-08-27-2023/{z}_v100_1" for z in ("us-east-2b", "us-west-2a", "us-west-2c")]
FOUR = [f"aws-08-03-2023/{z}_v100_1" for z in ("us-east-1f", "us-east-2a", "us-west-2c")]


def test_a_cluster_is_all_there_or_gone_nineteen_times_of_twenty() -> None:
    shares, ticks = [], 0
    for zone, nodes in [*((z, 16) for z in SIXTEEN), *((z, 4) for z in FOUR)]:
        counts = multi_node(zone).counts
        all_or_none = int(np.count_nonzero((counts == 0) | (counts >= nodes)))
        shares.append((zone, all_or_none, len(counts)))
        ticks += len(counts)
    assert ticks == 26_645
    assert sum(all_or_none for _, all_or_none, _ in shares) / ticks == pytest.approx(
        0.9422, abs=5e-4
    )
    _, all_or_none, own = shares[0]
    assert all_or_none / own == pytest.approx(0.8285, abs=5e-4)


@pytest.mark.parametrize(
    ("zone", "nodes", "disk", "memory"),
    [
        (SIXTEEN[0], 16, 0.3209, 0.0422),
        (SIXTEEN[1], 16, 0.2797, 0.0393),
        (SIXTEEN[2], 16, 0.2358, 0.0370),
        (FOUR[0], 4, 0.3262, 0.0411),
        (FOUR[1], 4, 0.0820, 0.0215),
        (FOUR[2], 4, 0.1502, 0.0281),
    ],
)
def test_a_gang_on_the_multi_node_series(zone: str, nodes: int, disk: float, memory: float) -> None:
    trace = multi_node(zone)
    for costs, rework in ((DISK, disk), (MEMORY, memory)):
        done = replay(trace, Job(nodes=nodes, min_nodes=nodes, costs=costs))
        assert done.rework_ratio == pytest.approx(rework, abs=5e-4)


def test_the_fit_of_sixteen_probes_in_one_zone() -> None:
    ticks = multi_node(SIXTEEN[1]).ticks(300)
    fit = fit_beta_binomial(ticks)
    assert fit.loss == pytest.approx(0.0448, abs=5e-5)
    assert fit.rho == pytest.approx(0.859, abs=5e-4)
    full = ticks.from_full(16)
    assert len(full.up) == 1980
    seen = [full.seen_at_least(k) for k in (1, 8, 16)]
    assert seen == pytest.approx([0.046, 0.03535, 0.02778], abs=5e-5)
    assert 1 - BetaBinomial(loss=fit.loss, rho=fit.rho).lost(16)[0] == pytest.approx(
        0.0663, abs=5e-4
    )


def test_the_greedy_policy_of_cant_be_late() -> None:
    """Table 3: 30.8 h on demand and 17.2 h on spot of 48 h, with 60 h to do it in.

    The first thirteen days of the eight series of 2022, 300 random starts of each.
    """
    folder = path_of("spot-traces/availability/1-node/aws-10-26-2022/us-west-2a_k80_1.json").parent
    rng = np.random.default_rng(1)
    on_demand_h, spot_h = [], []
    for path in sorted(folder.glob("*.json")):
        up = load(path, one_means="available").counts[:1872] > 0
        for start in rng.integers(0, len(up) - 360, size=300):
            done = greedy(
                up[start:],
                tick_s=600,
                work_s=48 * 3600,
                deadline_s=60 * 3600,
                changeover_s=720,
            )
            on_demand_h.append(done.on_demand_s / 3600)
            spot_h.append(done.spot_s / 3600)
    assert np.mean(on_demand_h) == pytest.approx(30.8, abs=1.5)
    assert np.mean(spot_h) == pytest.approx(17.2, abs=1.5)
