"""What all commands share: consoles, common options, and what an error is to a user."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TextIO, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from chaosspot import content
from chaosspot.toml import FileError

__all__ = [
    "INTERRUPTED",
    "Json",
    "Runs",
    "at_least",
    "err",
    "guarded",
    "out",
    "print_json",
    "show_warning",
    "stop",
    "used",
    "warn",
]

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTED = 130


class _Console(Console):
    """One whose reader may go away: a run goes on, and its exit code still tells."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        with open(os.devnull, "wb") as nothing:  # what is buffered must go somewhere at exit
            os.dup2(nothing.fileno(), self.file.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal that hung up
                raise
            self._buffer.clear()
            self.on_broken_pipe()


if sys.stdout is None:  # closed: what is found could not be told
    sys.stderr.write("chaosspot: standard output is closed\n")
    raise SystemExit(2)
out = _Console(width=None if sys.stdout.isatty() else 140)
err = _Console(stderr=True)

Runs = Annotated[Path | None, typer.Option(help="Where run directories are made.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]


def guarded(command: Callable[P, T]) -> Callable[P, T]:
    """Turns what a user can mend into one line and the right exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt as told:
            stop(str(told) or "interrupted", INTERRUPTED)
        except typer.Exit:
            raise
        except Exception as error:
            _explain(error)
            raise

    return run


def _explain(error: Exception) -> None:
    """End with one line and an exit code if a user can do something about it."""
    from chaosspot.conductor import LostError, RunError, StartError, UnsupportedError
    from chaosspot.undo import StateError

    if isinstance(error, UnsupportedError):
        stop(str(error), 4)
    if isinstance(error, LostError):
        stop(str(error), 3)
    usage = (content.ContentError, FileError, RunError, StartError, StateError, ValueError)
    if isinstance(error, usage):
        stop(str(error), 2)
    if isinstance(error, OSError):
        where = f" {error.filename!r}" if error.filename else ""
        stop(f"{error.strerror or error}{where}", 3)


def stop(message: str, code: int) -> NoReturn:
    """Say why on the standard error, and end with that exit code."""
    _say(f"[red]chaosspot:[/] {escape(message)}")
    raise typer.Exit(code)


def warn(message: str) -> None:
    """Say something on the standard error that changes nothing else."""
    _say(f"[yellow]chaosspot:[/] {escape(message)}")


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """``warnings.showwarning`` for users: where it was raised says nothing to them."""
    warn(str(message))


def print_json(value: Any) -> None:
    """Print a value as JSON, unfolded."""
    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def used(**given: Any) -> dict[str, Any]:
    """What is used: what the command line says, else what the settings say."""
    from chaosspot.settings import resolve

    resolved = resolve(given, environ=os.environ, folder=Path.cwd())
    return {name: setting.value for name, setting in resolved.items()}


def at_least(least: int, **options: int | None) -> None:
    """Refuse an option below ``least``."""
    for name, value in options.items():
        if value is not None and value < least:
            stop(f"--{name} {value}: at least {least}", 2)


def _say(text: str) -> None:
    err.print(text, soft_wrap=True, highlight=False)
