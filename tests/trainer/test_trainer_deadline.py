"""A notice is too short for the store, and long enough for flash and the peers: seconds of it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "suites" / "bench"
NOTICE_S = 4.0


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("deadline", BENCH / "deadline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deadline", module)  # dataclasses look annotations up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_the_store_misses_the_deadline_and_flash_with_a_peer_makes_it(
    deadline: ModuleType, tmp_path: Path
) -> None:
    case, lines = deadline.measured(tmp_path, 20_000_000, NOTICE_S)
    text = deadline.table(case, lines)
    assert deadline.as_claimed(lines), text
    store, handed_over = lines
    assert store.measured_s > 0.9 * store.here.predicted_s, text  # the bound is kept
    assert handed_over.measured_s > 0.8 * handed_over.here.predicted_s, text
    assert [text.count(" NO "), text.count(" yes ")] == [1, 1]


def test_all_takes_the_same_share_of_a_scaled_notice(deadline: ModuleType) -> None:
    field = deadline.FIELD
    case = field.scaled(50_000_000, 6.0)
    for way in (deadline.STRAIGHT, deadline.HANDED_OVER):
        share = field.plan(way).predicted_s / field.notice_s
        assert case.plan(way).predicted_s / case.notice_s == pytest.approx(share)


def test_a_table_that_says_otherwise_is_not_as_claimed(deadline: ModuleType) -> None:
    case = deadline.FIELD.scaled(50_000_000, 6.0)
    lines = [
        deadline.Line(
            way=way,
            field=deadline.FIELD.plan(way),
            here=case.plan(way),
            measured_s=1.0,
            in_time=way == deadline.HANDED_OVER,
        )
        for way in (deadline.STRAIGHT, deadline.HANDED_OVER)
    ]
    assert deadline.as_claimed(lines)
    for number in (0, 1):
        wrong = list(lines)
        wrong[number] = replace(wrong[number], in_time=not wrong[number].in_time)
        assert not deadline.as_claimed(wrong)
