"""What is known of this node's end, from whatever says it first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from chaosspot import probe
from chaosspot.trainer.watch.values import (
    Advice,
    Blind,
    Held,
    Maintenance,
    Notice,
    Report,
    Sighted,
    Trouble,
    Withdrawn,
)

__all__ = ["Notice", "NoticeBoard", "sigterm_is_a_notice"]


class NoticeBoard:
    """Where watchers post and the training loop looks. Safe from any thread and from a handler."""

    def __init__(self) -> None:
        self._posted: list[Report] = []  # append is atomic: no lock, a signal handler posts too
        self._reported = 0

    def post(self, report: Report) -> None:
        """Take note of something; a notice that is there already changes nothing."""
        if isinstance(report, Held | Trouble):  # these are for the log
            return
        if not isinstance(report, Notice) or report not in self._standing():
            self._posted.append(report)

    def time_left_s(self) -> float | None:
        """Seconds until the earliest deadline, negative when it has passed; None: no notice."""
        deadlines = [
            report.deadline_wall_s
            for report in self._standing()
            if not isinstance(report, Advice) and report.deadline_wall_s is not None
        ]
        return min(deadlines) - time.time() if deadlines else None

    def report(self) -> None:
        """Emit what has been posted since the last call; only the training loop calls this."""
        for report in self._posted[self._reported :]:
            self._reported += 1
            _emit(report)

    def _standing(self) -> list[Notice | Maintenance | Advice]:
        """What has been announced and not been withdrawn."""
        standing: list[Notice | Maintenance | Advice] = []
        for report in self._posted[:]:
            if isinstance(report, Notice | Maintenance | Advice):
                standing.append(report)
            elif isinstance(report, Withdrawn) and report.what in standing:
                standing.remove(report.what)
        return standing


def _emit(report: Report) -> None:
    match report:
        case Notice() | Maintenance():
            advertised = report.advertised_wall_s
            probe.emit(
                "notice" if isinstance(report, Notice) else "maintenance",
                provider=report.provider,
                action=report.action,
                # what the provider says, which others may compare, and what is made of it
                deadline_wall_s=report.deadline_wall_s if advertised is None else advertised,
                act_by_wall_s=report.deadline_wall_s,
            )
        case Advice():
            probe.emit("advice", provider=report.provider, action=report.action)
        case Withdrawn(what=what):
            probe.emit("withdrawn", provider=what.provider, action=what.action)
        case Blind():
            probe.emit("blind", provider=report.provider, why=report.why, for_s=report.for_s)
        case Sighted():
            probe.emit("sighted", provider=report.provider, for_s=report.for_s)


@contextmanager
def sigterm_is_a_notice(board: NoticeBoard, grace_s: float) -> Iterator[None]:
    """Within the block a SIGTERM posts a notice that leaves ``grace_s`` seconds.

    Does nothing outside the main thread, where Python takes no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    first = True

    def handler(_signal: int, _frame: FrameType | None) -> None:
        nonlocal first
        if first:  # a repeated SIGTERM gives no more time
            first = False
            deadline = time.time() + grace_s
            board.post(Notice(provider="sigterm", action="terminate", deadline_wall_s=deadline))

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
