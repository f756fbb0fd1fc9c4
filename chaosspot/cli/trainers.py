"""Commands over trainers: get to know one, or run the reference trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from chaosspot.cli.common import Runs, err, guarded, out, stop, used

__all__ = ["init", "train"]


@guarded
def init(
    command: Annotated[list[str], typer.Argument(help="The trainer's command line, after `--`.")],
    folder: Annotated[Path, typer.Option(help="Where the two files are written.")] = Path(),
    try_s: Annotated[float, typer.Option(help="Seconds to watch it, undisturbed.")] = 30.0,
    runs: Runs = None,
) -> None:
    """Get to know a trainer: try it undisturbed, write its description and a first test.

    Example: chaosspot init -- python train.py --config small
    """
    from chaosspot.introduce import description, first_test, introduce

    if try_s <= 0:
        stop(f"--try-s {try_s}: more than 0", 2)
    targets = folder / "chaosspot-trainer.toml", folder / "test_preemption.py"
    for target in targets:
        if target.exists():
            stop(f"{str(target)!r} exists already; nothing was written", 2)
    err.print(f"running it undisturbed for at most {try_s:g} s", highlight=False)
    known = introduce(command, try_s=try_s, runs=used(runs=runs)["runs"])
    folder.mkdir(parents=True, exist_ok=True)
    targets[0].write_text(description(command, known))
    targets[1].write_text(first_test(str(targets[0])))
    how = "through the probe" if known.probe else "in its output"
    for what, found in (
        ("steps", f"{known.steps} {how}" if known.steps else ""),
        ("loss", f"with {known.losses} of them" if known.losses else ""),
        ("checkpoints", ", ".join(known.checkpoints[:5])),
    ):
        mark = "[green]read[/]" if found else "[yellow]not read[/]"
        out.print(f"{mark}  {what}  {escape(found)}", highlight=False, soft_wrap=True)
    if not (known.log.strip() or known.probe):
        out.print(f"  it printed nothing in {try_s:g} s; --try-s gives it longer", highlight=False)
    if not known.checkpoints:
        out.print("  no checkpoint was found in $CHAOSSPOT_STORE, which is what outlives a node")
    out.print(f"wrote {targets[0]} and {targets[1]}", markup=False, soft_wrap=True)
    if known.ended == "exited":
        last = "\n".join(known.log.splitlines()[-10:])
        stop(f"it failed undisturbed, with code {known.code}; its last lines:\n{last}", 3)


@guarded
def train(
    data: Annotated[Path, typer.Option(help="File to learn from, read as bytes.")],
    steps: Annotated[int, typer.Option(help="Updates to make.")] = 200,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Keep snapshots here, a directory or s3://BUCKET/PREFIX, and go on from them.",
        ),
    ] = None,
) -> None:
    """Run the reference trainer alone, on one rank."""
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from chaosspot.trainer import TrainConfig
    from chaosspot.trainer import train as run_trainer
    from chaosspot.trainer.config import TrainerError
    from chaosspot.trainer.place import place

    kept = place(store) if store else None
    with Progress(
        *Progress.get_default_columns()[:2],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        console=err,
    ) as progress:
        bar = progress.add_task("training", total=steps, loss=float("nan"))
        try:
            result = run_trainer(
                TrainConfig(data=data, steps=steps, store=kept),
                on_step=lambda report: progress.update(
                    bar, completed=report.step, loss=report.loss
                ),
            )
        except TrainerError as error:
            stop(str(error), 2)
    loss = "" if result.loss is None else f", loss {result.loss:.4f}"
    out.print(f"{result.reason} at step {result.step}{loss}, state {result.digest}")
