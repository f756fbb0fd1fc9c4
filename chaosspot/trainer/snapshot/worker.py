"""A thread with an owner, for work that training must not wait for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Self, TypeVar

__all__ = ["Worker"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Worker:
    """Runs one job at a time, newest first; use as a context manager, which joins the thread.

    A job that is handed over while another one waits replaces it: the older one is outdated.
    A job that raises has failed softly: it is logged, and the next one runs.
    """

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._next: Callable[[], None] | None = None
        self._busy = False
        self._closed = False
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._next = None
            self._changed.notify_all()
        self._thread.join(timeout=1.0)  # a daemon: a disk that hangs does not keep the process

    def submit(self, job: Callable[[], None]) -> None:
        """Hand over a job and return at once."""
        with self._changed:
            self._next = job
            self._changed.notify_all()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Hand over a job and return at once; what it returns or raises is in the future."""
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where the result is taken
                future.set_exception(error)

        self.submit(job)
        return future

    @property
    def waits(self) -> bool:
        """Whether a job waits for the one that runs."""
        with self._changed:
            return self._busy and self._next is not None

    def withdraw(self) -> bool:
        """Take back the job that waits; False when none does."""
        with self._changed:
            waiting, self._next = self._next is not None, None
            self._changed.notify_all()
            return waiting

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing runs or waits; False when that took longer than ``timeout_s``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._busy or self._next is not None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._next is None and not self._closed:
                    self._changed.wait()
                if self._next is None:
                    return
                job, self._next, self._busy = self._next, None, True
            try:
                job()
            except OSError as error:
                self.failures += 1
                _log.warning("%s failed, training goes on: %s", self._thread.name, error)
            except Exception:  # noqa: BLE001 - it is logged whole
                self.failures += 1  # a bug, but no reason to lose the training as well
                _log.exception("%s failed, training goes on", self._thread.name)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
