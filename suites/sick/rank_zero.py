"""Only the process that had rank 0 at the start ever saves.

Planted bug: when it is gone nobody saves any more, and nobody notices before the state is needed.
"""

from __future__ import annotations

from typing import Any

from minimal import Trainer, main


class RankZero(Trainer):
    saver = False

    def enter(self, view: dict[str, Any]) -> None:
        super().enter(view)
        self.saver = view["rank"] == 0

    def save(self) -> None:
        if self.saver:
            super().save()


if __name__ == "__main__":
    main(RankZero)
