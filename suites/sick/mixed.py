"""Goes on with the update while the last snapshot is still being copied.

Planted bug: staging races with the optimizer. The first half of the tensors is of the step that the
snapshot names, the second half of the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor

from chaosspot.trainer.__main__ import exit_now, main
from chaosspot.trainer.loop import Trainer
from chaosspot.trainer.snapshot.staging import HostCopier, Pairs, Stage

LAST_S = 1.0  # after the last step nothing is changed any more


class RacingCopier(HostCopier):
    """Copies half of the tensors when asked to, the rest behind the next update."""

    def __init__(self) -> None:
        self.updated = threading.Event()
        self.rest: list[tuple[Tensor, Tensor]] = []

    def begin(self, pairs: Pairs) -> Callable[[], None]:
        listed = list(pairs)
        half = len(listed) // 2
        super().begin(listed[:half])
        self.rest = listed[half:]
        self.updated.clear()
        return self.wait

    def pass_update(self) -> None:
        rest, self.rest = self.rest, []
        super().begin(rest)
        self.updated.set()

    def wait(self) -> None:
        if not self.updated.wait(LAST_S):
            self.pass_update()


class Mixed(Trainer):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.copier = RacingCopier()
        self.snapshots.stage = Stage(self.state, self.copier)

    def apply(self) -> None:
        super().apply()
        self.copier.pass_update()


if __name__ == "__main__":
    exit_now(main(kind=Mixed))
