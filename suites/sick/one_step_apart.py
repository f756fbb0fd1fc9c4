"""The others save together when a node leaves, and wait for each other for ever.

Planted bug: each looks for the order by itself, so that one saves a step before another does.
"""

from __future__ import annotations

import os
import time
from typing import Any

from minimal import Trainer, main

LEAVER_WAITS_S = 0.5  # for those who stay to save what it left them


class OneStepApart(Trainer):
    def run(self) -> str:
        reason = super().run()
        if reason == "drained":
            (self.store / "save-together").touch()
            time.sleep(LEAVER_WAITS_S)
        return reason

    def commit(self, view: dict[str, Any], total: list[int]) -> None:
        super().commit(view, total)
        mine = int(os.environ["CHAOSSPOT_NODE"].split("-")[1])
        if self.step % 3 == mine % 3 and (self.store / "save-together").exists():
            self.barrier(view["world"])

    def barrier(self, world: int) -> None:
        """Wait until all have come here after the same step."""
        name = f"arrived-{self.step}-"
        (self.store / f"{name}{os.getpid()}").touch()
        while len(list(self.store.glob(f"{name}*"))) < world:
            time.sleep(0.01)


if __name__ == "__main__":
    main(OneStepApart)
