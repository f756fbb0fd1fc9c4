"""Counts its share of a step twice after it has joined.

Planted bug: the part is sent again after the rejoin, and both are summed.
"""

from __future__ import annotations

from typing import Any

from minimal import Trainer, main


class Doubling(Trainer):
    again = False

    def restore(self, state: dict[str, Any], source: str) -> None:
        super().restore(state, source)
        self.again = self.step > 0  # at the start there is nothing to send again

    def part(self, rank: int, world: int) -> list[int]:
        part = super().part(rank, world)
        times = 2 if self.again else 1
        self.again = False
        return [times * number for number in part]


if __name__ == "__main__":
    main(Doubling)
