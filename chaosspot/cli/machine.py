"""Commands over this machine and its settings."""

from __future__ import annotations

import os
from pathlib import Path

import typer
from rich.markup import escape

from chaosspot.cli.common import Json, guarded, out, print_json

__all__ = ["cleanup", "config", "doctor"]


@guarded
def doctor(json: Json = False) -> None:
    """Say what this machine can do."""
    from chaosspot.report.doctor import examine

    checks = examine()
    if json:
        print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[red]no[/]" if check.needed else "[dim]no[/]"
            out.print(f"{mark}  [bold]{check.what}[/]: {escape(check.found)}", highlight=False)
    raise typer.Exit(0 if all(check.ok for check in checks if check.needed) else 4)


@guarded
def config(json: Json = False) -> None:
    """Show every setting and where it comes from.

    Command line > environment (CHAOSSPOT_TRAINER, ...) > chaosspot.toml or [tool.chaosspot] >
    default.
    """
    from chaosspot.settings import resolve

    settings = resolve({}, environ=os.environ, folder=Path.cwd())
    if json:
        print_json(settings)
        return
    for name, setting in settings.items():
        out.print(f"{name} = {setting.value!r}  ({setting.origin})", markup=False, soft_wrap=True)


@guarded
def cleanup(json: Json = False) -> None:
    """Heal what runs that died left behind. Running attacks are not touched."""
    from chaosspot.undo import heal_dead_runs, heal_lost_containers

    healed = [*heal_dead_runs(), *heal_lost_containers()]
    if json:
        print_json([str(dead) for dead in healed])
    for dead in healed if not json else ():
        out.print(f"healed {escape(str(dead))}", soft_wrap=True)
    if not healed and not json:
        out.print("nothing to heal")
