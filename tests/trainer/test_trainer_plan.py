"""The trainer's decisions, one table each."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot.trainer.plan import (
    Candidate,
    drain_plan,
    is_uploader,
    keep_waiting,
    owned_shards,
    restore_order,
    snapshot_due,
    surplus,
)


@given(world=st.integers(1, 40), micro_shards=st.integers(1, 64))
def test_shares_are_disjoint_complete_and_even(world: int, micro_shards: int) -> None:
    shares = [list(owned_shards(rank, world, micro_shards)) for rank in range(world)]
    assert sorted(shard for share in shares for shard in share) == list(range(micro_shards))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_who_does_not_participate_computes_nothing() -> None:
    assert list(owned_shards(None, 3, 8)) == []


@pytest.mark.parametrize(
    ("step", "due"), [(1, False), (4, False), (5, True), (10, True), (12, True), (11, False)]
)
def test_snapshots_are_due_every_k_steps_and_at_the_end(step: int, due: bool) -> None:
    assert snapshot_due(step, 5, 12) is due


@pytest.mark.parametrize(("rank", "uploads"), [(0, True), (1, False), (None, False)])
def test_one_rank_uploads(rank: int | None, uploads: bool) -> None:
    assert is_uploader(rank) is uploads


@pytest.mark.parametrize(
    ("current", "local", "store", "order"),
    [
        pytest.param(0, [], [], [], id="nothing"),
        pytest.param(0, [5], [5], [("local", 5), ("store", 5)], id="nearest first"),
        pytest.param(0, [5], [10], [("store", 10), ("local", 5)], id="newest first"),
        pytest.param(7, [5], [10], [("store", 10)], id="not behind the peers"),
        pytest.param(10, [5, 10], [10], [], id="peers are as good"),
    ],
)
def test_restore_order(
    current: int, local: list[int], store: list[int], order: list[tuple[str, int]]
) -> None:
    found = restore_order(current_step=current, local=local, store=store)
    assert [(c.tier, c.step) for c in found] == order
    assert all(isinstance(c, Candidate) for c in found)


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


@pytest.mark.parametrize(
    ("left_s", "on_flash", "in_store", "has_store", "snapshot", "upload"),
    [
        pytest.param(9.0, False, False, True, True, True, id="both"),
        pytest.param(9.0, True, False, True, False, True, id="flash has it"),
        pytest.param(9.0, True, True, True, False, False, id="all done"),
        pytest.param(9.0, False, False, False, True, False, id="no store"),
        pytest.param(0.9, False, False, True, False, False, id="no time"),
        pytest.param(-5.0, False, False, True, False, False, id="too late"),
    ],
)
def test_drain_plan(
    left_s: float, on_flash: bool, in_store: bool, has_store: bool, snapshot: bool, upload: bool
) -> None:
    plan = drain_plan(time_left_s=left_s, on_flash=on_flash, in_store=in_store, has_store=has_store)
    assert (plan.snapshot, plan.upload) == (snapshot, upload)
    assert 2 * plan.flush_timeout_s <= max(0.0, left_s - 1.0)


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
