"""Commands over runs that are over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from chaosspot.cli.attacks import EXIT_CODES
from chaosspot.cli.common import Json, guarded, out, print_json, warn
from chaosspot.words import plain

__all__ = ["compare", "judge"]


@guarded
def judge(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Json = False,
) -> None:
    """Judge a run again from its files alone."""
    from chaosspot.conductor.judging import verdict_of, write_verdict
    from chaosspot.report.table import print_verdict

    verdict = verdict_of(run)
    try:
        write_verdict(run, verdict)
    except OSError as error:
        warn(f"{str(run / 'verdict.json')!r} could not be written: {error.strerror or error}")
    if json:
        print_json(verdict)
    else:
        print_verdict(verdict, out)
    raise typer.Exit(EXIT_CODES[verdict.outcome])


@guarded
def compare(
    base: Annotated[Path, typer.Argument(help="A run, or a folder of runs.")],
    new: Annotated[Path, typer.Argument(help="A run, or a folder of runs.")],
    tolerance: Annotated[float, typer.Option(help="Share by which a median may be worse.")] = 0.1,
    json: Json = False,
) -> None:
    """Compare two sets of runs; exits 1 on a regression."""
    from rich.table import Table

    from chaosspot.report.statistics import compare as compare_runs
    from chaosspot.report.statistics import load_runs

    changes = compare_runs(load_runs([base]), load_runs([new]), tolerance=tolerance)
    if json:
        print_json(changes)
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("schedule", "figure", "", "why"):
            table.add_column(column)
        for change in changes:
            mark = "[red]worse[/]" if change.worse else "[green]ok[/]"
            table.add_row(
                escape(plain(change.schedule)), change.figure, mark, escape(change.reason)
            )
        out.print(table)
    raise typer.Exit(1 if any(change.worse for change in changes) else 0)
