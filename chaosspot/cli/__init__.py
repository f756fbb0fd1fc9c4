"""The command line; ``chaosspot --help`` lists the commands."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import NoReturn

import typer

from chaosspot.cli import (
    attacks,
    catalogue,
    explore,
    machine,
    metadata,
    place,
    results,
    savings,
    serve,
    serve_proxy,
    serve_s3,
    snapshot,
    traced,
    trainers,
)
from chaosspot.cli.common import INTERRUPTED, err, show_warning
from chaosspot.undo import interrupts

__all__ = ["app", "main"]

HELP = "\n\n".join(
    (
        "Takes nodes away from a training job and says whether it came back in time, without "
        "losing or repeating more than it may, and with the right weights.",
        "Exit codes: 0 pass, 1 fail, 2 usage, 3 unknown, 4 this machine cannot make that fault, "
        "5 internal error, 130 interrupted.",
        "Ctrl-C, SIGTERM and SIGHUP end a run in good order: it stops, heals, keeps what was "
        "recorded and exits with 130. After SIGKILL its guardian heals.",
    )
)

app = typer.Typer(
    name="chaosspot",
    help=HELP,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    attacks.attack,
    attacks.replay,
    explore.explore,
    results.judge,
    results.compare,
    savings.savings,
    place.place,
    machine.doctor,
    trainers.init,
    machine.config,
    trainers.train,
    machine.cleanup,
):
    app.command()(command)
catalogue.app.command()(traced.from_trace)
app.add_typer(catalogue.app, name="faults")
serve.app.command()(serve_proxy.proxy)
serve.app.command()(serve_s3.s3)
app.add_typer(serve.app, name="serve")
app.add_typer(metadata.app, name="metadata")
app.add_typer(snapshot.app, name="snapshot")


def main() -> NoReturn:
    """Entry point: whatever goes wrong, the exit code says which kind of thing it was."""
    warnings.showwarning = show_warning
    interrupts.treat_alike()
    try:
        sys.exit(app())
    except (KeyboardInterrupt, SystemExit) as end:
        sys.exit(INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code)
    except BaseException:  # noqa: BLE001 - an uncaught exception would exit 1, which means fail
        traceback.print_exc()
        err.print("[red]internal error[/]: this is a bug in chaosspot; nothing is left running")
        sys.exit(5)
