"""Runs one attack from start to verdict."""

from __future__ import annotations

from pathlib import Path

from chaosspot.conductor.attacking import BACKENDS, Attack, UnsupportedError
from chaosspot.conductor.judging import judge_run
from chaosspot.conductor.observer import Observer
from chaosspot.conductor.rundir import LostError, RunError
from chaosspot.conductor.settled import UnsuitedError, unsuited
from chaosspot.conductor.stage import StartError
from chaosspot.schedule import Cloud, Schedule, StoreKind
from chaosspot.trainers import Trainer
from chaosspot.undo import StateError, interrupts
from chaosspot.verdict import Verdict

__all__ = [
    "BACKENDS",
    "LostError",
    "Observer",
    "RunError",
    "StartError",
    "StateError",
    "UnsuitedError",
    "UnsupportedError",
    "attack",
    "attack_async",
    "judge_run",
    "unsuited",
]


def attack(
    schedule: Schedule | str,
    *,
    name: str | None = None,
    trainer: Trainer | str = "reference",
    cluster: str = "processes",
    image: str | None = None,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    proxy_backend: str = "embedded",
    nodes: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    runs: Path | str = "runs",
    observer: Observer | None = None,
) -> Verdict:
    """Attack a trainer and judge what happened.

    Ctrl-C, SIGTERM and SIGHUP end it in good order, unless the caller has handlers of its own.

    Args:
        schedule: a schedule, or the name or path of one.
        name: what the run is called; the schedule's file name, or ``schedule``.
        trainer: a description, or the name or path of one.
        cluster: the backend; ``processes``, or ``containers`` of a Docker daemon.
        image: what containers are made of, instead of this machine's own programs.
        cloud: whose metadata service nodes ask, instead of the schedule's cluster's.
        store: what outlives nodes, ``directory`` or ``s3``, instead of the schedule's cluster's.
        proxy_backend: where links that a fault impairs go through: the ``embedded`` proxy, the
            ``real`` toxiproxy-server, or ``auto``, which is the real one where there is one.
        nodes: worker nodes in all, instead of what the schedule's cluster says.
        seed: decides which nodes are hit and when; the schedule's, or chosen and recorded.
        steps: stop at this step even if not everything is decided.
        runs: where the run directory is made.
        observer: told what happens while it does.

    Raises:
        ContentError, FileError: the schedule or trainer cannot be read or makes no sense.
        ValueError: a fault can never act, or an argument makes no sense.
        StateError: the state directory, where leases are, cannot be used.
        RunError: the run directory cannot be made.
        StartError: the trainer's command cannot be started.
        LostError: the run directory was removed during the run.
        UnsuitedError: the faults cannot be made to this trainer.
        UnsupportedError: this machine cannot make one of the faults.
        KeyboardInterrupt: it was told to stop; everything is healed.
    """
    this = Attack(
        schedule,
        name=name,
        trainer=trainer,
        cluster=cluster,
        image=image,
        cloud=cloud,
        store=store,
        proxy_backend=proxy_backend,
        nodes=nodes,
        seed=seed,
        steps=steps,
        runs=runs,
        observer=observer,
    )
    try:
        return interrupts.run(this.run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(this.interrupted) from None


async def attack_async(
    schedule: Schedule | str,
    *,
    name: str | None = None,
    trainer: Trainer | str = "reference",
    cluster: str = "processes",
    image: str | None = None,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    proxy_backend: str = "embedded",
    nodes: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    runs: Path | str = "runs",
    observer: Observer | None = None,
) -> Verdict:
    """:func:`attack` for callers that run an asyncio event loop already; signals are theirs."""
    return await Attack(
        schedule,
        name=name,
        trainer=trainer,
        cluster=cluster,
        image=image,
        cloud=cloud,
        store=store,
        proxy_backend=proxy_backend,
        nodes=nodes,
        seed=seed,
        steps=steps,
        runs=runs,
        observer=observer,
    ).run()
