"""Values that cannot be are refused, by name and with what they were."""

from __future__ import annotations

import math

__all__ = ["above_0", "at_least_0", "at_least_1", "below_1", "share"]


def share(**values: float) -> None:
    """Refuse what is not within [0, 1].

    Raises:
        ValueError: with the name and the value.
    """
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} = {value!r}: at least 0 and at most 1")


def below_1(**values: float) -> None:
    """Refuse what is not within [0, 1) (see :func:`share`)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} = {value!r}: at least 0 and below 1")


def at_least_0(**values: float) -> None:
    """Refuse what is negative or not finite (see :func:`share`)."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} = {value!r}: at least 0 and finite")


def above_0(**values: float) -> None:
    """Refuse what is not positive or not finite (see :func:`share`)."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} = {value!r}: above 0 and finite")


def at_least_1(**values: int) -> None:
    """Refuse a number of things below 1 (see :func:`share`)."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} = {value!r}: at least 1")
