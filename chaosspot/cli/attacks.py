"""Commands that attack a trainer."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, cast

import typer

from chaosspot import schedule
from chaosspot.cli.common import Json, Runs, at_least, err, guarded, out, print_json, stop, used
from chaosspot.cli.traced import From, Lead, OneMeansOption, Speed, TimeUnitOption, To
from chaosspot.cli.traced import read as read_trace
from chaosspot.verdict import Outcome, Verdict

__all__ = ["EXIT_CODES", "attack", "replay"]

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}


@guarded
def attack(
    schedules: Annotated[
        list[str] | None,
        typer.Argument(help="Names from `chaosspot faults`, or paths of TOML files."),
    ] = None,
    trainer: Annotated[
        str | None, typer.Option(help="A shipped trainer, or the path of a description.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Where nodes live: processes, or containers (Docker).")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="What containers are made of, instead of this machine.")
    ] = None,
    cloud: Annotated[
        str | None, typer.Option(help="Whose metadata service nodes ask: aws, gcp or azure.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="What outlives nodes: directory, or s3 (an object store).")
    ] = None,
    proxy_backend: Annotated[
        str,
        typer.Option(help="What impaired links go through: embedded, real (Toxiproxy) or auto."),
    ] = "embedded",
    nodes: Annotated[
        int | None, typer.Option(help="Worker nodes in all, instead of the schedule's.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides which nodes are hit and when.")] = None,
    steps: Annotated[int | None, typer.Option(help="Stop at this step even if undecided.")] = None,
    runs: Runs = None,
    repeat: Annotated[
        int, typer.Option(help="Run each schedule this often; the seed grows by 1.")
    ] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="A preemption trace to attack with, instead of schedules.")
    ] = None,
    speed: Speed = None,
    start: From = None,
    end: To = None,
    lead: Lead = None,
    one_means: OneMeansOption = None,
    time_unit: TimeUnitOption = None,
    json: Json = False,
) -> None:
    """Attack a trainer with one or several schedules, or with a trace, and judge each.

    Every attack leaves a run directory; the worst outcome decides the exit code. An attack that is
    interrupted (Ctrl-C, SIGTERM, SIGHUP) heals and keeps what it recorded; the exit code is 130.
    """
    from chaosspot.conductor import attack as one_attack
    from chaosspot.report.progress import Progress
    from chaosspot.report.table import print_verdict
    from chaosspot.trainers import load as load_trainer

    at_least(1, nodes=nodes, steps=steps, repeat=repeat)
    at_least(0, seed=seed)
    given = used(trainer=trainer, cluster=cluster, image=image, seed=seed, runs=runs)
    attacked = load_trainer(given["trainer"])
    if trace is None:
        of_trace = {"speed": speed, "from": start, "to": end, "lead": lead}
        of_trace |= {"one-means": one_means, "time-unit": time_unit}
        for name, value in of_trace.items():
            if value is not None:
                stop(f"--{name} {value}: it is of a trace (--trace)", 2)
        if not schedules:
            stop("Missing argument: schedules, or --trace FILE", 2)
        plans = [schedule.load(name) for name in schedules]
    else:
        if schedules:
            stop(f"--trace {trace} and schedules ({', '.join(schedules)}) exclude another", 2)
        plans = [
            read_trace(
                trace,
                nodes=nodes,
                speed=speed,
                start=start,
                end=end,
                lead=lead,
                one_means=one_means,
                time_unit=time_unit,
            )
        ]
        nodes = None  # it was made for them
    verdicts: list[Verdict] = []
    try:
        for name, plan in plans:
            chosen = plan.seed if given["seed"] is None else given["seed"]
            first = secrets.randbelow(2**31) if chosen is None else chosen
            for turn in range(repeat):
                verdict = one_attack(
                    plan,
                    seed=first + turn,
                    name=name,
                    trainer=attacked,
                    cluster=given["cluster"],
                    image=given["image"],
                    cloud=cast("schedule.Cloud | None", cloud),
                    store=cast("schedule.StoreKind | None", store),
                    proxy_backend=proxy_backend,
                    nodes=nodes,
                    steps=steps,
                    runs=given["runs"],
                    observer=None if json else Progress(err),
                )
                verdicts.append(verdict)
                if not json:
                    print_verdict(verdict, out)
    finally:  # what was finished is told, however the rest ended
        _tell(verdicts, json)
    raise typer.Exit(EXIT_CODES[_worst(verdicts)])


@guarded
def replay(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    runs: Runs = None,
    json: Json = False,
) -> None:
    """Run the schedule of an earlier run again, and say whether the verdict is the same."""
    from chaosspot.conductor import attack as one_attack
    from chaosspot.conductor.rundir import backend_of, evidence_of, read_verdict
    from chaosspot.report.progress import Progress
    from chaosspot.report.table import print_verdict

    evidence, before = evidence_of(run), read_verdict(run)
    cluster, image = backend_of(run)
    again = one_attack(
        evidence.schedule,
        name=before.schedule,
        trainer=evidence.trainer,
        cluster=cluster,
        image=image,
        runs=used(runs=runs)["runs"],
        observer=None if json else Progress(err),
    )
    same = _essence(before) == _essence(again)
    if json:
        print_json({"matched": same, "before": before, "again": again})
    else:
        print_verdict(again, out)
        out.print(
            f"the verdict [bold]{'matched' if same else 'differs'}[/]: "
            f"{' '.join(_essence(before))} before, {' '.join(_essence(again))} now"
        )
    raise typer.Exit(EXIT_CODES[again.outcome])


def _tell(verdicts: list[Verdict], json: bool) -> None:
    from chaosspot.report.table import print_summary

    if json and verdicts:
        print_json({"outcome": _worst(verdicts), "verdicts": verdicts})
    elif len(verdicts) > 1:
        print_summary(verdicts, out)


def _worst(verdicts: list[Verdict]) -> Outcome:
    return max((verdict.outcome for verdict in verdicts), key=lambda outcome: outcome.weight)


def _essence(verdict: Verdict) -> tuple[str, ...]:
    """What a replay must reproduce: the outcome and what decided it."""
    primary = verdict.primary
    return (verdict.outcome.value, primary.oracle) if primary else (verdict.outcome.value,)
