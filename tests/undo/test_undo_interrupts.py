"""Ctrl-C, SIGTERM and SIGHUP are one and the same, and healing is not interrupted by them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import anyio
import pytest

from chaosspot.undo import interrupts

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("first", SIGNALS)
def test_the_first_cancels_and_the_others_wait_for_the_healing(first: signal.Signals) -> None:
    done: list[str] = []
    before = handlers()

    async def main() -> None:
        try:
            os.kill(os.getpid(), first)
            await anyio.sleep(30)
            done.append("went on")
        finally:
            for number in SIGNALS:
                os.kill(os.getpid(), number)
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
                done.append("healed")

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(main)
    assert done == ["healed"]
    assert handlers() == before


def test_a_signal_while_it_heals_anyway_does_not_cut_that_short() -> None:
    done: list[str] = []

    async def main() -> None:
        with anyio.CancelScope(shield=True):
            os.kill(os.getpid(), signal.SIGTERM)
            await anyio.sleep(0.05)
            done.append("healed")

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(main)
    assert done == ["healed"]


def test_a_signal_that_comes_last_of_all_is_not_lost() -> None:
    async def main() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 1

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(main)


def test_a_signal_wakes_a_loop_that_waits_for_something_else() -> None:
    """It comes to another thread here; just before the wait begins, it is as unheard."""
    healed = False

    async def main() -> None:
        nonlocal healed
        threading.Thread(target=signal.raise_signal, args=(signal.SIGTERM,)).start()
        try:
            await anyio.sleep(30)
        finally:
            healed = True

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupts.run(main)
    assert healed
    assert time.monotonic() - started < 15


def test_without_a_signal_there_is_the_result_or_the_error() -> None:
    async def good() -> int:
        return 7

    async def bad() -> int:
        raise LookupError("by hand")

    before = handlers()
    assert interrupts.run(good) == 7
    with pytest.raises(LookupError, match="by hand"):
        interrupts.run(bad)
    assert handlers() == before


def test_a_callers_own_handler_stays_and_so_does_what_was_ignored() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def main() -> int:
        for number in (signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        await anyio.sleep(0.01)
        return 7

    assert interrupts.run(main) == 7
    assert heard == [signal.SIGTERM]


def test_it_may_run_in_any_thread() -> None:
    result: list[int] = []

    async def main() -> int:
        await anyio.sleep(0.001)
        return 7

    thread = threading.Thread(target=lambda: result.append(interrupts.run(main)))
    thread.start()
    thread.join()
    assert result == [7]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_program_is_told_by_an_exception(number: signal.Signals) -> None:
    code = (
        "import os, signal, sys\n"
        "from chaosspot.undo import interrupts\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "interrupts.treat_alike()\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)}); signal.pause()\n"
        "except KeyboardInterrupt: sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7
