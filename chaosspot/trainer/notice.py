"""The first word that this node will be taken away, from whatever says it first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from chaosspot import probe

__all__ = ["Notice", "NoticeBoard", "sigterm_is_a_notice"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One announcement: who made it, what will happen, and when (Unix time, seconds)."""

    provider: str
    action: str
    deadline_wall_s: float


class NoticeBoard:
    """Where watchers post and the training loop looks. Safe from any thread and from a handler."""

    def __init__(self) -> None:
        self._notices: list[Notice] = []  # append is atomic: no lock, a signal handler posts too
        self._reported = 0

    def post(self, notice: Notice) -> None:
        if notice not in self._notices:
            self._notices.append(notice)

    def time_left_s(self) -> float | None:
        """Seconds until the earliest deadline, negative when it has passed; None: no notice."""
        if not self._notices:
            return None
        return min(notice.deadline_wall_s for notice in self._notices) - time.time()

    def report(self) -> None:
        """Emit what has been posted since the last call; only the training loop calls this."""
        for notice in self._notices[self._reported :]:
            self._reported += 1
            probe.emit(
                "notice",
                provider=notice.provider,
                action=notice.action,
                deadline_wall_s=notice.deadline_wall_s,
            )


@contextmanager
def sigterm_is_a_notice(board: NoticeBoard, grace_s: float) -> Iterator[None]:
    """Within the block a SIGTERM posts a notice that leaves ``grace_s`` seconds.

    Does nothing outside the main thread, where Python takes no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(_signal: int, _frame: FrameType | None) -> None:
        if board.time_left_s() is None:  # a repeated SIGTERM gives no more time
            deadline = time.time() + grace_s
            board.post(Notice(provider="sigterm", action="terminate", deadline_wall_s=deadline))

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
