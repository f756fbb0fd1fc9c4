"""The thread that watches for notices: makes the requests a state machine asks for.

A watcher that dies costs a node its whole warning, so nothing that happens to it ends it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Self

from chaosspot.trainer.notice import NoticeBoard
from chaosspot.trainer.watch.detect import Provider, start
from chaosspot.trainer.watch.exchange import Stopped, Wire
from chaosspot.trainer.watch.values import (
    Advice,
    Blind,
    Held,
    Maintenance,
    Moment,
    Notice,
    Pace,
    Report,
    Sighted,
    Trouble,
    Withdrawn,
)

__all__ = ["Watcher"]

_log = logging.getLogger(__name__)


class Watcher:
    """One thread that watches until it is told to stop; use as a context manager, which joins it.

    Args:
        endpoint: base URL of the service.
        board: takes what is seen.
        provider: whose service that is; ``auto`` finds out by asking.
        jitter: gives numbers from [0, 1).

    Raises:
        InputError: ``endpoint`` is not an http URL.
    """

    def __init__(
        self,
        endpoint: str,
        board: NoticeBoard,
        *,
        provider: Provider = "aws",
        pace: Pace | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._wire = Wire(endpoint)
        self._board = board
        self._provider = provider
        self._pace = pace or Pace()
        self._jitter = jitter
        self._thread = threading.Thread(target=self._run, name="metadata", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.stop()
        self._thread.join(timeout=1.0)  # looking up a name cannot be broken off
        if not self._thread.is_alive():
            self._wire.close()

    def _run(self) -> None:
        while True:
            try:
                self._watch()
            except Stopped:
                return
            except Exception:  # noqa: BLE001 - nothing may cost the node its warning
                _log.exception("the watch for notices broke down and begins again")
            try:
                self._wire.sleep_until(time.monotonic() + self._pace.interval_s)
            except Stopped:
                return

    def _watch(self) -> None:
        began = Moment(now_s=time.monotonic(), wall_s=time.time())
        watch = start(self._provider, self._pace, began)
        while True:
            self._wire.sleep_until(watch.ask.at_s)
            outcome = self._wire.exchange(watch.ask.request)
            watch, reports = watch.hear(outcome, self._jitter())
            for report in reports:
                self._board.post(report)
                _tell(report)


def _tell(report: Report) -> None:
    match report:
        case Notice() | Maintenance():
            in_s = None
            if report.deadline_wall_s is not None:
                in_s = round(report.deadline_wall_s - time.time(), 1)
            end = "this node survives it" if in_s is None else f"{in_s:g} s are left"
            _log.warning("%s announces %s: %s", report.provider, report.action, end)
        case Advice():
            _log.warning("%s advises %s", report.provider, report.action)
        case Withdrawn(what=what):
            _log.warning("%s announces %s no more", what.provider, what.action)
        case Held():
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(report.advertised_wall_s))
            _log.warning(
                "%s announces %s for %s: too early to act", report.provider, report.action, at
            )
        case Trouble():
            _log.warning("%s metadata, will ask again: %s", report.provider, report.why)
        case Blind():
            _log.error(
                "%s metadata: no usable answer for %.0f s, a notice would not be seen: %s",
                report.provider, report.for_s, report.why,
            )  # fmt: skip
        case Sighted():
            _log.warning("%s metadata: answers again, after %.0f s", report.provider, report.for_s)
