"""What is appended to a file becomes lines, however it arrives."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosspot import history as h
from chaosspot.conductor import tail as tail_module
from chaosspot.conductor.lines import Lines
from chaosspot.conductor.tail import Tail
from chaosspot.trainers import Patterns

text = st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n"]), max_size=30).map(b"".join)


def fed(chunks: list[bytes], *, returns: bool = True, most_bytes: int = 100) -> list[bytes]:
    lines = Lines(returns=returns, most_bytes=most_bytes)
    return [line.data for chunk in chunks for line in lines.feed(chunk)]


@given(text, st.lists(st.integers(0, 60), max_size=6))
def test_lines_do_not_depend_on_how_they_arrive(data: bytes, cuts: list[int]) -> None:
    at = sorted({0, *cuts, len(data)})
    chunks = [data[start:end] for start, end in itertools.pairwise(at)]
    assert fed(chunks) == re.split(rb"\r\n|\r|\n", data)[:-1]
    assert fed(chunks, returns=False) == data.split(b"\n")[:-1]


def test_a_partial_line_is_none_yet() -> None:
    assert fed([b"step 1", b"2 loss"]) == []
    assert fed([b"step 1", b"2 loss", b"\r"]) == [b"step 12 loss"]


def test_a_line_that_is_too_long_is_cut_and_still_one_line() -> None:
    lines = Lines(returns=True, most_bytes=4)
    assert list(lines.feed(b"abc")) == []
    for _ in range(1000):
        assert list(lines.feed(b"d" * 1000)) == []
        assert len(lines._begun) <= 4
    assert list(lines.feed(b"\nabcd\nabcde\nx\n")) == [
        (b"abcd"[:3] + b"d", True),
        (b"abcd", False),
        (b"abcd", True),
        (b"x", False),
    ]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def steps(tail: Tail) -> list[int]:
    return [record.step for record in tail.poll() if isinstance(record, h.Commit)]


def test_a_progress_bar_is_read_as_it_moves(tmp_path: Path) -> None:
    patterns = Patterns(commit=r"(?P<step>\d+)/100 ")
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=patterns)
    log = tmp_path / "node-0.log"
    append(log, b"start\r\n\r  1%| 1/100 [00:01")
    assert steps(tail) == []  # more digits of anything may come
    append(log, b"]\r  2%| 2/100 []\r 3%| 3/100 []")
    assert steps(tail) == [1, 2]
    append(log, b"\r\n")
    append(log, b"done\n")
    assert steps(tail) == [3]
    tail.close()


def test_output_without_an_end_does_not_grow_the_harness(tmp_path: Path) -> None:
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=Patterns(commit=r"^step (?P<step>\d+)"))
    log = tmp_path / "node-0.log"
    append(log, b"step 7 " + b"." * (3 << 20))
    assert steps(tail) == []
    (lines,) = tail._lines.values()
    assert len(lines._begun) <= 64 << 10
    append(log, b"\nstep 8\n")
    assert steps(tail) == [7, 8]
    tail.close()


def test_an_event_that_is_too_long_is_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_MOST_EVENT_BYTES", 1000)
    tail = Tail(events=tmp_path, logs=tmp_path, patterns=None)
    append(tmp_path / "n.0.0.1.jsonl", b'{"event": "x", "y": "' + b"z" * 2000 + b'"}\n')
    (record,) = tail.poll()
    assert isinstance(record, h.Malformed)
    assert record.reason == "longer than 1000 bytes"
    assert len(record.line) <= 200
    tail.close()
