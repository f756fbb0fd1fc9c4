"""Commands over what can go wrong."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from chaosspot import content, schedule, toml
from chaosspot.cli.common import Json, guarded, out, print_json

__all__ = ["app"]

app = typer.Typer(help="What can go wrong.", invoke_without_command=True)


@app.callback()
@guarded
def faults(context: typer.Context, json: Json = False) -> None:
    """List the catalogue, or `show` one schedule of it."""
    from rich.table import Table

    if context.invoked_subcommand is not None:
        return
    listed = [schedule.load(known) for known in content.names("faults")]
    if json:
        print_json(dict(listed))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("name", "what happens", "imitates"):
        table.add_column(column, overflow="fold")
    for known, plan in listed:
        table.add_row(f"[bold]{escape(known)}[/]", escape(plan.title), escape(plan.imitates))
    out.print(table)


@app.command()
@guarded
def show(
    name: Annotated[str, typer.Argument(help="A name of the catalogue, or a path.")],
    json: Json = False,
    as_toml: Annotated[
        bool, typer.Option("--toml", help="Print the file itself, to start your own from.")
    ] = False,
) -> None:
    """Explain one schedule, with what happens when."""
    from chaosspot.report.timeline import explain

    name, plan = schedule.load(name)
    if json:
        print_json(plan)
    elif as_toml:
        out.print(toml.dumps(plan), markup=False, highlight=False, soft_wrap=True)
    else:
        out.print(explain(name, plan), markup=False, highlight=False, soft_wrap=True)
