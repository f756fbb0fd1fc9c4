"""The trainer's decisions, one table each."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot.trainer.cadence import optimum_s
from chaosspot.trainer.plan import (
    Cadence,
    Rates,
    drain_plan,
    keep_waiting,
    owned_shards,
    snapshot_due,
    snapshot_now,
    superfluous,
    surplus,
)
from chaosspot.trainer.snapshot.parts import Part, SnapshotId


@given(world=st.integers(1, 40), micro_shards=st.integers(1, 64))
def test_shares_are_disjoint_complete_and_even(world: int, micro_shards: int) -> None:
    shares = [list(owned_shards(rank, world, micro_shards)) for rank in range(world)]
    assert sorted(shard for share in shares for shard in share) == list(range(micro_shards))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_who_does_not_participate_computes_nothing() -> None:
    assert list(owned_shards(None, 3, 8)) == []


def due(step: int, cadence: Cadence, *, since_s: float = 0.0, at_risk: bool = False) -> bool:
    return snapshot_due(
        step, 12, cadence, since_s=since_s, stall_s=0.5, at_risk=at_risk, put_off=False
    )


@pytest.mark.parametrize(
    ("step", "wanted"), [(1, False), (4, False), (5, True), (10, True), (12, True), (11, False)]
)
def test_snapshots_are_due_every_k_steps_and_at_the_end(step: int, wanted: bool) -> None:
    assert due(step, Cadence(steps=5), since_s=1e9) is wanted


def test_a_snapshot_is_due_when_a_part_of_the_last_one_may_be_lost() -> None:
    assert due(1, Cadence(steps=5), at_risk=True)


def test_a_snapshot_that_was_put_off_is_due_until_it_is_taken() -> None:
    asked = {"since_s": 0.0, "stall_s": 0.5, "at_risk": False}
    assert snapshot_due(6, 12, Cadence(steps=5), put_off=True, **asked)
    assert not snapshot_due(6, 12, Cadence(steps=5), put_off=False, **asked)


@pytest.mark.parametrize(
    ("wanting", "busy", "step", "now"),
    [(1, 0, 5, True), (4, 0, 5, True), (0, 0, 5, False), (4, 1, 5, False), (4, 4, 12, True)],
)
def test_all_snapshot_or_none(wanting: int, busy: int, step: int, now: bool) -> None:
    assert snapshot_now(step, 12, wanting=wanting, busy=busy) is now


@given(
    every=st.integers(1, 5),
    writes=st.lists(st.lists(st.integers(1, 9), min_size=30, max_size=30), min_size=1, max_size=4),
)
def test_however_slow_the_disks_what_is_taken_is_taken_and_written_by_all(
    every: int, writes: list[list[int]]
) -> None:
    """Each rank's disk takes so many steps for its first snapshot, its second, and so on."""
    behind: list[list[tuple[int, int]]] = [[] for _ in writes]  # of each: (step, steps left)
    taken: list[int] = []
    put_off = False
    for step in range(1, 31):
        for rank, queue in enumerate(behind):
            if queue:
                at, left = queue[0]
                queue[:1] = [(at, left - 1)] if left > 1 else []
            assert len(queue) <= 2, f"rank {rank} would have to give one up"
        wanting = sum(
            snapshot_due(
                step, 99, Cadence(steps=every), since_s=0, stall_s=0, at_risk=False, put_off=put_off
            )
            for _ in writes
        )
        busy = sum(len(queue) == 2 for queue in behind)
        now = snapshot_now(step, 99, wanting=wanting, busy=busy)
        put_off = wanting > 0 and not now
        if now:
            for queue, its in zip(behind, writes, strict=True):
                queue.append((step, its[len(taken)]))
            taken.append(step)
    slowest = max(max(its) for its in writes)
    assert all(b - a <= every + slowest for a, b in itertools.pairwise(taken))


@pytest.mark.parametrize("cadence", [Cadence(seconds=30.0), Cadence(mtbi_s=900.0)])
def test_snapshots_are_due_by_time(cadence: Cadence) -> None:
    interval_s = cadence.interval_s(0.5)
    assert interval_s == (30.0 if cadence.seconds else optimum_s(stall_s=0.5, mtbi_s=900.0))
    assert not due(5, cadence, since_s=interval_s - 0.1)
    assert due(5, cadence, since_s=interval_s)
    assert due(12, cadence)


@pytest.mark.parametrize(
    ("steps", "keep", "in_use", "gone"),
    [
        ([5, 10, 15, 20], 2, (), [10, 5]),
        ([5, 10, 15, 20], 2, (5,), [10]),
        ([5], 2, (), []),
        ([20, 5, 10], 1, (), [10, 5]),
    ],
)
def test_surplus(steps: list[int], keep: int, in_use: tuple[int, ...], gone: list[int]) -> None:
    assert surplus(steps, keep, in_use) == gone


@given(st.sets(st.integers(0, 99)), st.integers(1, 9), st.sets(st.integers(0, 99)))
def test_the_newest_snapshots_always_stay(steps: set[int], keep: int, in_use: set[int]) -> None:
    left = steps - set(surplus(steps, keep, in_use))
    assert set(sorted(steps)[-keep:]) <= left
    assert steps & in_use <= left


def part(step: int, index: int = 0, count: int = 1) -> Part:
    return Part(SnapshotId(step, 1, count), index)


def test_parts_are_superfluous_before_what_is_kept_and_complete() -> None:
    parts = [part(5), part(10, 0, 2), part(15), part(20), part(25, 1, 2)]
    complete = [part(5).of, part(15).of, part(20).of]
    assert superfluous(parts, complete, 1) == [part(5), part(10, 0, 2), part(15)]
    assert superfluous(parts, complete, 2) == [part(5), part(10, 0, 2)]
    assert superfluous(parts, complete, 9) == []
    assert superfluous(parts, [], 1) == []


@given(st.sets(st.tuples(st.integers(1, 9), st.integers(0, 1))), st.integers(1, 3))
def test_what_is_complete_and_newest_is_never_superfluous(
    there: set[tuple[int, int]], keep: int
) -> None:
    parts = [part(step, index, 2) for step, index in there]
    complete = [part(step, 0, 2).of for step in range(10) if {(step, 0), (step, 1)} <= there]
    gone = {p.of for p in superfluous(parts, complete, keep)}
    assert not gone & set(complete[-keep:])
    assert all(of.step < complete[-1].step for of in gone)


FAST = Rates(flash=100.0, store=10.0)


@pytest.mark.parametrize(
    ("left_s", "staying", "leaving", "size", "parts", "upload", "margin_s"),
    [
        pytest.param(9.0, 0, 1, 50, 1, True, 2.5, id="alone: all of it"),
        pytest.param(9.0, 0, 5, 50, 5, True, 6.9, id="all leave: a part each"),
        pytest.param(3.0, 0, 1, 50, 1, True, -3.5, id="nobody else: even if it will not do"),
        pytest.param(9.0, 3, 1, 50, 1, True, 2.5, id="others stay: in case"),
        pytest.param(3.0, 3, 1, 50, None, False, -3.5, id="others stay and it takes too long"),
        pytest.param(0.9, 0, 1, 50, None, False, -5.5, id="no time"),
        pytest.param(-5.0, 0, 1, 50, None, False, -5.5, id="too late"),
    ],
)
def test_drain_plan(
    left_s: float,
    staying: int,
    leaving: int,
    size: int,
    parts: int | None,
    upload: bool,
    margin_s: float,
) -> None:
    plan = drain_plan(
        time_left_s=left_s,
        staying=staying,
        leaving=leaving,
        total_bytes=size,
        has_store=True,
        rates=FAST,
    )
    assert (plan.parts, plan.upload) == (parts, upload)
    assert plan.margin_s == pytest.approx(margin_s)
    assert plan.flush_timeout_s == max(0.0, left_s - 1.0)


def test_without_a_store_the_state_goes_to_flash_and_what_was_never_measured_fits() -> None:
    given = {"time_left_s": 2.0, "staying": 0, "leaving": 1, "total_bytes": 10**12}
    plan = drain_plan(**given, has_store=False, rates=Rates())
    assert (plan.parts, plan.upload, plan.predicted_s) == (1, False, 0.0)


@pytest.mark.parametrize(
    ("left_s", "wait"), [(None, True), (9.0, True), (2.0, False), (-1.0, False)]
)
def test_a_late_notice_stops_waiting_for_peers(left_s: float | None, wait: bool) -> None:
    assert keep_waiting(left_s) is wait


def test_plan_and_config_load_neither_torch_nor_io() -> None:
    script = (
        "import sys, chaosspot.trainer.plan, chaosspot.trainer.config;"
        "bad = {'torch', 'torchft', 'numpy', 'socket', 'asyncio'} & set(sys.modules);"
        "sys.exit(str(sorted(bad)) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
