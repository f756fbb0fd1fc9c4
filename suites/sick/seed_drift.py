"""Restores everything but the random stream.

Planted bug: after a resume the random numbers of the beginning come again.
"""

from __future__ import annotations

from typing import Any

from solo import Solo, main


class SeedDrift(Solo):
    def restore(self, state: dict[str, Any], source: str) -> None:
        super().restore({**state, "random": self.random.bit_generator.state}, source)


if __name__ == "__main__":
    main(SeedDrift)
