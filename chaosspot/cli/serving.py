"""What the commands have in common that serve until they are told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from chaosspot.cli.common import out, stop

__all__ = ["serve"]


class _OutputError(OSError):
    """Nobody can be told what is served, and where."""


def serve(service: Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]) -> None:
    """Run a service, which is given what prints a line; ends with 3 when that cannot be done.

    Raises:
        OSError: the service's own.
    """
    try:
        asyncio.run(service(_tell))
    except _OutputError as error:
        stop(f"the output cannot be written: {error.strerror}", 3)


def _tell(line: str) -> None:
    try:
        print(line, flush=True)  # noqa: T201
    except BrokenPipeError:  # its reader went away: who uses the service is not to notice
        out.on_broken_pipe()
    except OSError as error:
        raise _OutputError(error.errno, error.strerror) from error
