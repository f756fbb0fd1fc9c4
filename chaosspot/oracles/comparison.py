"""What the harness saw when it laid two final checkpoints side by side."""

from __future__ import annotations

import msgspec

__all__ = ["Comparison", "Difference"]


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one final checkpoint differs from an undisturbed one.

    ``distance`` is the relative L2 distance over all arrays of numbers; None when they cannot be
    compared, because ``only_here`` or ``only_there`` names arrays (or other shapes) that the other
    lacks. ``unequal`` names what is not equal bit for bit.
    """

    arrays: int
    unequal: tuple[str, ...] = ()
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()
    distance: float | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's final checkpoint beside the twin's: made when the run ends, kept in ``final.json``.

    ``problem`` says why the run's own cannot be read, ``twin_problem`` why the twin's cannot.
    """

    checkpoint: str
    problem: str = ""
    twin_problem: str = ""
    difference: Difference | None = None
