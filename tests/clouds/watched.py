"""The small trainer with the reference trainer's watcher, so that an attack costs no torch."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from minimal import METADATA, Trainer, main

from chaosspot.trainer.notice import NoticeBoard
from chaosspot.trainer.watch.detect import named
from chaosspot.trainer.watcher import Watcher


class Watched(Trainer):
    """Leaves for what the reference trainer leaves for."""

    board = NoticeBoard()

    def noticed(self) -> dict[str, Any] | None:
        left_s = self.board.time_left_s()
        if self.notice or left_s is None:
            return self.notice
        return {"provider": "watcher", "action": "leave", "deadline_wall_s": None}


if __name__ == "__main__":
    with ExitStack() as watching:
        for provider, endpoint in named(os.environ).items():
            watching.enter_context(Watcher(endpoint, Watched.board, provider=provider))
        for name in METADATA:  # the small trainer's own watcher is not to see it
            os.environ.pop(name, None)
        main(Watched)
