"""How a run is told to stop: Ctrl-C, SIGTERM and SIGHUP are one and the same.

The first asks the run to stop; it heals and ends. Any more of them while it does change nothing:
what must end at once is ended by SIGKILL, and then the guardian heals.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

__all__ = ["run", "treat_alike"]

T = TypeVar("T")

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def treat_alike() -> None:
    """From now on SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does.

    For the main function of a program. What the parent had ignored (nohup) stays ignored.
    """
    for number in _NUMBERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """``anyio.run``, cancelled by the first signal; to be called in the main thread or any other.

    Only signals are listened to whose handler is the usual one, and only in the main thread,
    where alone Python allows it.

    Raises:
        KeyboardInterrupt: a signal came; everything that ``main`` does at its end is done.
    """
    import asyncio  # not at the top: every command line has this module

    import anyio
    import anyio.lowlevel

    told: list[int] = []
    cancel: list[Callable[[], object]] = []
    result: list[T] = []

    def tell(number: int, _: Any) -> None:
        told.append(number)
        if len(told) == 1:
            for act in cancel:
                act()

    async def entry() -> None:
        loop = asyncio.get_running_loop()
        with _waking(loop), anyio.CancelScope() as scope:
            cancel.append(lambda: loop.call_soon_threadsafe(scope.cancel))
            if told:
                scope.cancel()
            await anyio.lowlevel.checkpoint()
            result.append(await main())

    with _listening(tell):
        anyio.run(entry)
    if told:
        raise KeyboardInterrupt
    return result[0]


@contextmanager
def _listening(tell: Callable[[int, Any], None]) -> Iterator[None]:
    mine: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        usual = (signal.SIG_DFL, signal.default_int_handler)
        handlers = {number: signal.getsignal(number) for number in _NUMBERS}
        mine = {number: handler for number, handler in handlers.items() if handler in usual}
    for number in mine:
        signal.signal(number, tell)
    try:
        yield
    finally:
        for number, handler in mine.items():
            signal.signal(number, handler)


@contextmanager
def _waking(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """A signal wakes the loop, also one that comes to another thread, or just before it waits.

    A handler in Python runs between two instructions of the main thread: one that waits for
    files already runs it only after that, be it an hour.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    with heard, told:
        heard.setblocking(False)
        told.setblocking(False)
        loop.add_reader(heard, heard.recv, 4096)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(heard)
