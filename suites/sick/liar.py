"""Reports a checkpoint durable when it is staged.

Planted bug: what is reported is written only when several more checkpoints are due.
"""

from __future__ import annotations

from solo import Parts, Solo, main

STAGED = 6  # checkpoints that stay in memory


class Liar(Solo):
    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.staged: list[tuple[int, Parts]] = []

    def write(self, step: int, parts: Parts) -> int:
        self.staged.append((step, parts))
        if len(self.staged) <= STAGED:
            return 0
        return super().write(*self.staged.pop(0))


if __name__ == "__main__":
    main(Liar)
