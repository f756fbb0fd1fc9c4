from __future__ import annotations

import pytest

from chaosspot.words import count, plain


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (10**7, "10000000 steps")]
)
def test_singular_and_plural(number: int, words: str) -> None:
    assert count(number, "step") == words


def test_a_plural_of_its_own() -> None:
    assert [count(number, "process", "processes") for number in (1, 3)] == [
        "1 process",
        "3 processes",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("höher → 2", "höher → 2"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b2J", "\\x9b2J"),
        ("\u2028", "\\u2028"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown
