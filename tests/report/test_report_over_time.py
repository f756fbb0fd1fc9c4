"""A number over time, as a line."""

from __future__ import annotations

import pytest

from chaosspot.report.over_time import bars


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0, 8), (5, 4), (10, 4)], "████▄▄▄▄"),
        ([(0, 8), (5, 0), (7.5, 8), (10, 8)], "████  ██"),
        ([(0, 8), (1.0, 1), (1.1, 8), (10, 8)], "▁███████"),  # however short, it shows
        ([(0, 1), (10, 1)], "████████"),
        ([(0, 3), (5, 1), (10, 1)], "████▃▃▃▃"),
        ([(0, 0), (10, 0)], "        "),
        ([(0, 8)], ""),
        ([(2, 8), (2, 7)], ""),
        ([], ""),
    ],
)
def test_a_line_shows_the_lowest_number_of_each_span(
    points: list[tuple[float, float]], expected: str
) -> None:
    assert bars(points, width=8) == expected
