"""Restores the optimizer from a snapshot without its count of steps.

Planted bug: its moments are those of step 40, and are corrected as those of step 1 have to be.
"""

from __future__ import annotations

from typing import Literal

from chaosspot.trainer.__main__ import exit_now, main
from chaosspot.trainer.loop import Trainer


class ShortMemory(Trainer):
    def took_over(self, source: Literal["peer", "local", "store"]) -> None:
        if source != "peer":
            self.state._updates = 0
        super().took_over(source)


if __name__ == "__main__":
    exit_now(main(kind=ShortMemory))
