"""Words that people are shown."""

from __future__ import annotations

import re

__all__ = ["CONTROL", "count", "plain"]

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what moves a cursor or ends a line


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 step``, ``2 steps``, ``0 ranks``; ``plural`` is for nouns that take more than an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def plain(text: str) -> str:
    """``text`` with its control characters escaped, for a terminal: one line stays one line."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
