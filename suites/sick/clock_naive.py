"""Believes that every notice leaves two minutes.

Planted bug: the deadline in the notice is not read; the node works on for most of 120 s.
"""

from __future__ import annotations

import time
from typing import Any

from minimal import Trainer, main

LEAD_S = 120.0
DRAIN_S = 30.0  # kept for leaving


class ClockNaive(Trainer):
    told_t: float | None = None

    def noticed(self) -> dict[str, Any] | None:
        if self.notice and self.told_t is None:
            self.told_t = time.monotonic()
        due = self.told_t is not None and time.monotonic() > self.told_t + LEAD_S - DRAIN_S
        return self.notice if due else None


if __name__ == "__main__":
    main(ClockNaive)
