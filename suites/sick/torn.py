"""Writes every checkpoint over the last one.

Planted bug: a kill in the middle of a checkpoint leaves neither the new one nor the old one.
"""

from __future__ import annotations

from pathlib import Path

from solo import Solo, main


class Torn(Solo):
    def checkpoint(self, step: int) -> Path:
        return self.store / "checkpoint-0"


if __name__ == "__main__":
    main(Torn)
