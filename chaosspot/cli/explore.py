"""The command that searches for what breaks a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from chaosspot.cli.common import Json, Runs, at_least, err, guarded, out, print_json, stop, used
from chaosspot.verdict import Outcome
from chaosspot.words import count, plain

if TYPE_CHECKING:
    from chaosspot.explore.exploring import Found
    from chaosspot.explore.journal import Entry
    from chaosspot.explore.running import Report
    from chaosspot.schedule import Cloud, StoreKind

__all__ = ["explore"]

_COLOUR = {Outcome.PASS: "green", Outcome.UNKNOWN: "yellow", Outcome.FAIL: "red"}
_EXIT = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}


@guarded
def explore(
    trainer: Annotated[
        str | None, typer.Option(help="A shipped trainer, or the path of a description.")
    ] = None,
    budget: Annotated[
        str, typer.Option(help="So many attacks in all (200), or a time (90s, 10m, 2h).")
    ] = "200",
    kinds: Annotated[
        str | None, typer.Option(help="Kinds of faults, with commas; all that suit the trainer.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Worker nodes at the start: 3, or 1-4.")] = None,
    cloud: Annotated[
        str | None, typer.Option(help="Whose metadata service nodes ask: aws, gcp or azure.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="What outlives nodes: directory, or s3 (an object store).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides what is tried.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="A folder for a copy of the schedule that is found.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with an exploration: its run directory.")
    ] = None,
    crash_points: Annotated[
        bool,
        typer.Option("--crash-points", help="Stop a node at every file-system event of its saves."),
    ] = False,
    runs: Runs = None,
    json: Json = False,
) -> None:
    """Search for a schedule that the trainer fails, and hand over the smallest one.

    Exits with 1 if one was found, or if the trainer fails without any fault. What an exploration
    does is written down after each attack, so that it can go on after a kill, with --resume.
    """
    at_least(0, seed=seed)
    given = used(trainer=trainer, seed=seed, runs=runs)
    least, most = _range(nodes)
    if crash_points:
        _crash_points(given["trainer"], given["runs"], json)
        return
    from chaosspot.explore.running import explore as run

    with _Bar(quiet=json) as bar:
        report = run(
            given["trainer"],
            budget=budget,
            kinds=None if kinds is None else tuple(k.strip() for k in kinds.split(",")),
            min_nodes=least,
            max_nodes=most,
            cloud=cast("Cloud | None", cloud),
            store=cast("StoreKind | None", store),
            seed=given["seed"],
            runs=given["runs"],
            keep=keep,
            resume=resume,
            watcher=bar,
        )
    if json:
        print_json(report)
    else:
        _tell(report)
    raise typer.Exit(_code(report))


def _range(nodes: str | None) -> tuple[int | None, int | None]:
    if nodes is None:
        return None, None
    least, _, most = nodes.partition("-")
    if not least.isdecimal() or not (most or least).isdecimal():
        stop(f"--nodes {nodes!r}: a number (3) or two (1-4)", 2)
    return int(least), int(most or least)


class _Bar:
    """Watches an exploration, and shows how much of its budget is spent."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} % of the budget"),
            TimeElapsedColumn(),
            console=err,
            disable=quiet or not err.is_terminal,
        )
        self._quiet = quiet
        self._attacks = 0
        self._doing = "search"

    def __enter__(self) -> _Bar:
        self._progress.start()
        self._task = self._progress.add_task("the trainer undisturbed", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def attacked(self, entry: Entry, share: float) -> None:
        self._attacks += 1
        text = f"{entry.purpose}: {count(self._attacks, 'attack')}"
        self._progress.update(self._task, completed=share, description=text)

    def found(self, found: Found) -> None:
        if not self._quiet:
            first = found.trial
            self._progress.console.print(
                f"[red]found[/] after {count(found.attacks, 'attack')}: {first.oracle}: "
                f"{escape(plain(first.message))}; making it smaller"
            )


def _tell(report: Report) -> None:
    came_to = report.exploration
    seen = report.coverage
    if came_to.stopped == "broken":
        trial = came_to.undisturbed
        assert trial is not None
        out.print(
            f"[bold red]{trial.outcome}[/] {escape(report.trainer)} does not pass undisturbed, so "
            f"nothing was tried: {trial.oracle}: {escape(plain(trial.message))}\n"
            f"  run directory {escape(trial.run)}"
        )
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "exercised", "never"):
        table.add_column(column, overflow="fold")
    for what in ("kinds", "targets", "triggers", "phases"):
        counts: dict[str, int] = getattr(seen, what)
        said = ", ".join(f"{name} {number}" for name, number in counts.items()) or "-"
        table.add_row(what, escape(said), escape(", ".join(seen.never[what]) or "-"))
    out.print(table)
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in seen.outcomes.items())
    out.print(
        f"{count(seen.schedules, 'schedule')} in {count(came_to.attacks, 'attack')} ({outcomes}), "
        f"{came_to.took_s:.0f} s, seed {report.seed}; stopped: {came_to.stopped}"
    )
    for chance in came_to.unconfirmed:
        out.print(
            f"[yellow]not confirmed[/]: {chance.trial.oracle} once, and in none of "
            f"{chance.replays} replays: {escape(chance.trial.run)}"
        )
    if (found := came_to.found) is not None:
        out.print(
            f"[bold red]fail[/]  {escape(report.trainer)} by [bold]{found.trial.oracle}[/]: "
            f"{escape(plain(found.trial.message))}\n"
            f"  found after {count(found.attacks, 'attack')}, made smaller in {found.shrinks}, "
            f"failed again in {found.failed_again} of {found.replays} replays"
        )
        out.print(Syntax(Path(report.file).read_text(), "toml", background_color="default"))
        out.print(f"  replay: {report.replay}", soft_wrap=True, markup=False, highlight=False)
    elif (worst := came_to.worst) is not None:
        trial = worst.trial
        recovery = "-" if trial.recovery_s is None else f"{trial.recovery_s:.2f} s"
        out.print(
            f"nothing fails; at worst a recovery of {recovery} and {trial.rework_steps or 0} steps "
            f"of rework: {escape(report.folder)}/worst.toml"
        )
    else:
        out.print("nothing fails")
    if came_to.stopped == "budget":
        out.print(f"go on with: chaosspot explore --resume {report.folder}", soft_wrap=True)


def _code(report: Report) -> int:
    came_to = report.exploration
    if came_to.found is not None:
        return 1
    if came_to.undisturbed is not None:
        return 1 if came_to.undisturbed.outcome is Outcome.FAIL else 3
    return 0


def _crash_points(trainer: str, runs: Path, json: bool) -> None:
    from chaosspot.explore.crash_points import Stopped, crash_points

    def told(stopped: Stopped, of: int) -> None:
        event = stopped.stop.event
        err.print(
            f"{stopped.outcome} of {of}: {stopped.stop.where} {event.deed} {plain(event.path)}",
            markup=False,
            highlight=False,
        )

    result = crash_points(trainer, runs=runs, told=(lambda *_: None) if json else told)
    if json:
        print_json(result)
    elif result.undisturbed:
        out.print(f"{trainer} does not pass undisturbed: {plain(result.undisturbed)}", markup=False)
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("event", "", "file", "stopped", "outcome", "finding"):
            table.add_column(column, overflow="fold")
        for stopped in result.stopped:
            event, colour = stopped.stop.event, _COLOUR[stopped.outcome]
            table.add_row(
                str(event.number),
                event.deed,
                escape(plain(event.path)),
                stopped.stop.where,
                f"[{colour}]{stopped.outcome}[/]",
                escape(plain(f"{stopped.oracle}: {stopped.message}")) if stopped.oracle else "",
            )
        out.print(table)
        bad = sum(stopped.outcome is Outcome.FAIL for stopped in result.stopped)
        stops = count(len(result.stopped), "stop")
        out.print(
            f"[bold]{result.outcome}[/]  {stops} at {count(result.events, 'event')} of "
            f"{escape(result.trainer)}: {bad} failed; {escape(result.folder)}"
        )
    raise typer.Exit(_EXIT[result.outcome])
