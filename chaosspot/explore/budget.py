"""How much an exploration may cost."""

from __future__ import annotations

import re
from typing import Self

import msgspec

__all__ = ["Budget"]

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """So many attacks in all, or so many seconds.

    With a count, one seed is one exploration; with a time, it depends on the machine.
    """

    attacks: int | None = None
    time_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """``200``, ``90s``, ``10m`` or ``2h``.

        Raises:
            ValueError: it is none of these, or 0.
        """
        match = re.fullmatch(r"(\d+)([smh]?)", text.strip())
        if match is None:
            raise ValueError(f"budget {text!r}: so many attacks (200) or a time (90s, 10m, 2h)")
        number = int(match[1])
        if number == 0:
            raise ValueError(f"budget {text!r}: nothing can be tried")
        if not match[2]:
            return cls(attacks=number)
        return cls(time_s=number * _UNITS_S[match[2]])

    def left(self, attacks: int, time_s: float) -> bool:
        """Whether another attack may begin after so many, which took so long."""
        if self.attacks is not None and attacks >= self.attacks:
            return False
        return self.time_s is None or time_s < self.time_s

    def share(self, attacks: int, time_s: float) -> float:
        """How much of it is spent, from 0 to 1."""
        spent = attacks / self.attacks if self.attacks else 0.0
        return min(1.0, max(spent, time_s / self.time_s if self.time_s else 0.0))
