"""Waits for ever for the parts of a checkpoint that others are to store.

Planted bug: one rank's upload fails, and all others stay at the barrier.
"""

from __future__ import annotations

from minimal import main
from sharded import Sharded


class Stranded(Sharded):
    def patience_s(self) -> float:
        return float("inf")


if __name__ == "__main__":
    main(Stranded)
