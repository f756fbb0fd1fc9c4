"""The command line; ``chaosspot --help`` lists the commands."""

from __future__ import annotations

import secrets
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from chaosspot import content, schedule, toml
from chaosspot.toml import FileError
from chaosspot.verdict import Outcome, Verdict

P = ParamSpec("P")
T = TypeVar("T")

EXIT_CODES = """\
Exit codes: 0 pass, 1 fail, 2 usage, 3 unknown, 4 this machine cannot make that fault,
5 internal error, 130 interrupted."""

app = typer.Typer(
    name="chaosspot",
    help="Takes nodes away from a training job and says whether it came back in time, without "
    "losing or repeating more than it may, and with the right weights.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out = Console(width=None if sys.stdout.isatty() else 140)
err = Console(stderr=True)

_OF = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}

Runs = Annotated[Path | None, typer.Option(help="Where run directories are made.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]


def main() -> NoReturn:
    """Entry point: whatever goes wrong, the exit code says which kind of thing it was."""
    try:
        sys.exit(app())
    except (KeyboardInterrupt, SystemExit) as end:
        code = 130 if isinstance(end, KeyboardInterrupt) else end.code
        sys.exit(code)
    except BaseException:  # noqa: BLE001 - an uncaught exception would exit 1, which means fail
        traceback.print_exc()
        err.print("[red]internal error[/]: this is a bug in chaosspot; nothing is left running")
        sys.exit(5)


def guarded(command: Callable[P, T]) -> Callable[P, T]:
    """Turns what a user can mend into one line and the right exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        from chaosspot.conductor import RunError, StartError, UnsupportedError

        try:
            return command(*args, **kwargs)
        except (content.ContentError, FileError, RunError, StartError, ValueError) as error:
            _stop(str(error), 2)
        except UnsupportedError as error:
            _stop(str(error), 4)
        except OSError as error:
            where = f" {error.filename!r}" if error.filename else ""
            _stop(f"{error.strerror or error}{where}", 3)
        except KeyboardInterrupt:
            _stop("interrupted; everything is healed, what was recorded is kept", 130)

    return run


def _stop(message: str, code: int) -> NoReturn:
    err.print(f"[red]chaosspot:[/] {escape(message)}", soft_wrap=True, highlight=False)
    raise typer.Exit(code)


@app.command()
@guarded
def attack(
    schedules: Annotated[
        list[str], typer.Argument(help="Names from `chaosspot faults`, or paths of TOML files.")
    ],
    trainer: Annotated[
        str | None, typer.Option(help="A shipped trainer, or the path of a description.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Where nodes live: processes.")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Worker nodes in all, instead of the schedule's.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides which nodes are hit and when.")] = None,
    steps: Annotated[int | None, typer.Option(help="Stop at this step even if undecided.")] = None,
    runs: Runs = None,
    repeat: Annotated[
        int, typer.Option(help="Run each schedule this often; the seed grows by 1.")
    ] = 1,
    json: Json = False,
) -> None:
    """Attack a trainer with one or several schedules and judge each.

    Every attack leaves a run directory; the worst outcome decides the exit code.
    """
    from chaosspot.conductor import attack as one_attack
    from chaosspot.report.progress import Progress
    from chaosspot.report.table import print_summary, print_verdict
    from chaosspot.trainers import load as load_trainer

    _at_least(1, nodes=nodes, steps=steps, repeat=repeat)
    _at_least(0, seed=seed)
    used = _used(trainer=trainer, cluster=cluster, seed=seed, runs=runs)
    attacked = load_trainer(used["trainer"])
    plans = [schedule.load(name) for name in schedules]
    verdicts: list[Verdict] = []
    for name, plan in plans:
        chosen = plan.seed if used["seed"] is None else used["seed"]
        first = secrets.randbelow(2**31) if chosen is None else chosen
        for turn in range(repeat):
            verdict = one_attack(
                plan,
                seed=first + turn,
                name=name,
                trainer=attacked,
                cluster=used["cluster"],
                nodes=nodes,
                steps=steps,
                runs=used["runs"],
                observer=None if json else Progress(err),
            )
            verdicts.append(verdict)
            if not json:
                print_verdict(verdict, out)
    if json:
        _print_json({"outcome": _worst(verdicts), "verdicts": verdicts})
    elif len(verdicts) > 1:
        print_summary(verdicts, out)
    raise typer.Exit(_OF[_worst(verdicts)])


@app.command()
@guarded
def replay(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    runs: Runs = None,
    json: Json = False,
) -> None:
    """Run the schedule of an earlier run again, and say whether the verdict is the same."""
    from chaosspot.conductor import attack as one_attack
    from chaosspot.conductor.rundir import evidence_of, read_verdict
    from chaosspot.report.progress import Progress
    from chaosspot.report.table import print_verdict

    evidence, before = evidence_of(run), read_verdict(run)
    again = one_attack(
        evidence.schedule,
        name=before.schedule,
        trainer=evidence.trainer,
        runs=_used(runs=runs)["runs"],
        observer=None if json else Progress(err),
    )
    same = _essence(before) == _essence(again)
    if json:
        _print_json({"matched": same, "before": before, "again": again})
    else:
        print_verdict(again, out)
        out.print(
            f"the verdict [bold]{'matched' if same else 'differs'}[/]: "
            f"{' '.join(_essence(before))} before, {' '.join(_essence(again))} now"
        )
    raise typer.Exit(_OF[again.outcome])


@app.command()
@guarded
def judge(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Json = False,
) -> None:
    """Judge a run again from its files alone."""
    from chaosspot.conductor import judge_run
    from chaosspot.report.table import print_verdict

    verdict = judge_run(run)
    if json:
        _print_json(verdict)
    else:
        print_verdict(verdict, out)
    raise typer.Exit(_OF[verdict.outcome])


faults_app = typer.Typer(help="What can go wrong.", invoke_without_command=True)
app.add_typer(faults_app, name="faults")


@faults_app.callback()
@guarded
def faults(context: typer.Context, json: Json = False) -> None:
    """List the catalogue, or `show` one schedule of it."""
    from rich.table import Table

    if context.invoked_subcommand is not None:
        return
    listed = [schedule.load(known) for known in content.names("faults")]
    if json:
        _print_json(dict(listed))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("name", "what happens", "imitates"):
        table.add_column(column, overflow="fold")
    for known, plan in listed:
        table.add_row(f"[bold]{known}[/]", escape(plan.title), escape(plan.imitates))
    out.print(table)


@faults_app.command()
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
        _print_json(plan)
    elif as_toml:
        out.print(toml.dumps(plan), markup=False, highlight=False, soft_wrap=True)
    else:
        out.print(explain(name, plan), markup=False, highlight=False, soft_wrap=True)


@app.command()
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
        _print_json(changes)
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("schedule", "figure", "", "why"):
            table.add_column(column)
        for change in changes:
            mark = "[red]worse[/]" if change.worse else "[green]ok[/]"
            table.add_row(change.schedule, change.figure, mark, escape(change.reason))
        out.print(table)
    raise typer.Exit(1 if any(change.worse for change in changes) else 0)


@app.command()
@guarded
def doctor(json: Json = False) -> None:
    """Say what this machine can do."""
    from chaosspot.report.doctor import examine

    checks = examine()
    if json:
        _print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[red]no[/]" if check.needed else "[dim]no[/]"
            out.print(f"{mark}  [bold]{check.what}[/]: {escape(check.found)}", highlight=False)
    raise typer.Exit(0 if all(check.ok for check in checks if check.needed) else 4)


@app.command()
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
        _stop(f"--try-s {try_s}: more than 0", 2)
    targets = folder / "chaosspot-trainer.toml", folder / "test_preemption.py"
    folder.mkdir(parents=True, exist_ok=True)
    for target in targets:
        if target.exists():
            _stop(f"{str(target)!r} exists already; nothing was written", 2)
    err.print(f"running it undisturbed for at most {try_s:g} s", highlight=False)
    known = introduce(command, try_s=try_s, runs=_used(runs=runs)["runs"])
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
    if not known.checkpoints:
        out.print("  no checkpoint was found in $CHAOSSPOT_STORE, which is what outlives a node")
    out.print(f"wrote {targets[0]} and {targets[1]}", soft_wrap=True)
    if known.ended == "exited":
        last = "\n".join(known.log.splitlines()[-10:])
        _stop(f"it failed undisturbed, with code {known.code}; its last lines:\n{last}", 3)


@app.command()
@guarded
def config(json: Json = False) -> None:
    """Show every setting and where it comes from.

    Command line > environment (CHAOSSPOT_TRAINER, ...) > chaosspot.toml or [tool.chaosspot] >
    default.
    """
    import os

    from chaosspot.settings import resolve

    settings = resolve({}, environ=os.environ, folder=Path.cwd())
    if json:
        _print_json(settings)
        return
    for name, setting in settings.items():
        out.print(f"{name} = {setting.value!r}  ({setting.origin})", markup=False, soft_wrap=True)


@app.command()
@guarded
def train(
    data: Annotated[Path, typer.Option(help="File to learn from, read as bytes.")],
    steps: Annotated[int, typer.Option(help="Updates to make.")] = 200,
    store: Annotated[
        Path | None, typer.Option(help="Keep snapshots here and go on from them.")
    ] = None,
) -> None:
    """Run the reference trainer alone, on one rank."""
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from chaosspot.trainer import TrainConfig
    from chaosspot.trainer import train as run_trainer
    from chaosspot.trainer.config import TrainerError

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
                TrainConfig(data=data, steps=steps, store=store),
                on_step=lambda report: progress.update(
                    bar, completed=report.step, loss=report.loss
                ),
            )
        except TrainerError as error:
            _stop(str(error), 2)
    loss = "" if result.loss is None else f", loss {result.loss:.4f}"
    out.print(f"{result.reason} at step {result.step}{loss}, state {result.digest}")


@app.command()
@guarded
def cleanup(json: Json = False) -> None:
    """Heal what runs that died left behind. Running attacks are not touched."""
    from chaosspot.undo import heal_dead_runs

    healed = heal_dead_runs()
    if json:
        _print_json([str(dead) for dead in healed])
    for dead in healed if not json else ():
        out.print(f"healed {escape(str(dead))}", soft_wrap=True)
    if not healed and not json:
        out.print("nothing to heal")


def _used(**given: Any) -> dict[str, Any]:
    """What is used: what the command line says, else what the settings say."""
    import os

    from chaosspot.settings import resolve

    resolved = resolve(given, environ=os.environ, folder=Path.cwd())
    return {name: setting.value for name, setting in resolved.items()}


def _at_least(least: int, **options: int | None) -> None:
    for name, value in options.items():
        if value is not None and value < least:
            _stop(f"--{name} {value}: at least {least}", 2)


def _worst(verdicts: list[Verdict]) -> Outcome:
    return max((verdict.outcome for verdict in verdicts), key=lambda outcome: outcome.weight)


def _essence(verdict: Verdict) -> tuple[str, ...]:
    """What a replay must reproduce: the outcome and what decided it."""
    primary = verdict.primary
    return (verdict.outcome.value, primary.oracle) if primary else (verdict.outcome.value,)


def _print_json(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    out.print(text, markup=False, highlight=False, soft_wrap=True)
