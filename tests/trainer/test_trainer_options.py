"""The options of ``python -m chaosspot.trainer``: a value out of range is named."""

from __future__ import annotations

import pytest

from chaosspot.trainer.__main__ import parse
from chaosspot.trainer.config import InputError

NEEDED = ["--data", "text", "--steps", "3"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--width", "0"], "width must be at least 1, got width=0"),
        (
            ["--width", "6", "--heads", "4"],
            "width must be a multiple of heads, got width=6, heads=4",
        ),
        (["--lr", "-1"], "learning_rate must be positive and finite, got learning_rate=-1.0"),
        (["--lr", "nan"], "learning_rate must be positive and finite, got learning_rate=nan"),
        (["--sigterm-grace", "inf"], "sigterm_grace_s must be positive and finite"),
        (["--gather", "-1"], "gather must be a time, 0 or more, got -1 s"),
        (["--gather", "nan"], "gather must be a time, 0 or more, got nan s"),
        (["--mtbi", "0"], "mtbi must be positive and finite, got 0"),
    ],
)
def test_a_value_out_of_range_is_named(options: list[str], named: str) -> None:
    with pytest.raises(InputError, match=named.replace(".", r"\.")):
        parse([*NEEDED, *options], {})


def test_the_least_values_are_taken() -> None:
    config = parse([*NEEDED, "--gather", "0", "--width", "1", "--heads", "1"], {})
    assert (config.gather_s, config.width) == (0.0, 1)
