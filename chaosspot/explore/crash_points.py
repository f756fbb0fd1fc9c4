"""Stops a node at every file-system event of its saves, and judges how the job comes back.

The events come from an undisturbed run under ``filewatch/sitecustomize.py``, which makes each of
them a point. What was seen once with nothing saved before and again later is tried both times;
what is done over and over in between is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot import trainers
from chaosspot.conductor import attack, rundir
from chaosspot.nodes import ClusterSpec, Group
from chaosspot.schedule import Kill, Schedule, Trigger
from chaosspot.trainers import Trainer
from chaosspot.verdict import Outcome, Verdict

__all__ = ["CrashPoints", "Event", "Stop", "Stopped", "chosen", "crash_points", "judged", "stops"]

_STEPS = 25  # of the undisturbed run: several saves, and the removal of old ones
_HOOK = Path(__file__).parent / "filewatch"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One file-system event of a trainer: its number from 1, what was done, and to what.

    ``write``: which write it is, from 1; 0 for what is none.
    """

    number: int
    deed: str
    path: str
    write: int = 0

    @property
    def sort(self) -> tuple[str, str]:
        """What it has in common with the same event of other saves."""
        return self.deed, re.sub(r"\d+", "N", self.path)


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node is stopped: at which event, and ``before``, ``torn`` or ``after``."""

    event: Event
    where: str

    @property
    def trigger(self) -> Trigger:
        nth = self.event.write if self.where == "torn" else self.event.number
        return Trigger(point=f"file.{self.where}", nth=nth)


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; ``run`` is where it can be looked at, empty for what passed."""

    stop: Stop
    outcome: Outcome
    oracle: str = ""
    message: str = ""
    run: str = ""


class CrashPoints(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``undisturbed`` says why nothing was tried, if it was not."""

    trainer: str
    folder: str
    events: int
    stopped: tuple[Stopped, ...] = ()
    undisturbed: str = ""

    @property
    def outcome(self) -> Outcome:
        if self.undisturbed:
            return Outcome.UNKNOWN
        outcomes = [stopped.outcome for stopped in self.stopped]
        return max(outcomes, key=lambda o: o.weight, default=Outcome.UNKNOWN)


def crash_points(
    trainer: Trainer | str,
    *,
    runs: Path | str = "runs",
    seed: int = 0,
    told: Callable[[Stopped, int], None] = lambda stopped, of: None,
) -> CrashPoints:
    """Stop a node at every file-system event of its saves.

    Args:
        trainer: a description, or the name or path of one. It has to be a Python program that
            saves below ``CHAOSSPOT_STORE`` or ``CHAOSSPOT_FLASH``; it need not be changed.
        runs: where the directory is made.
        seed: recorded; nothing depends on it.
        told: of each stop when it is judged, and of how many there are.

    Raises:
        ValueError: no event was seen.
        ContentError, FileError, RunError, StateError, StartError, KeyboardInterrupt: as in an
            attack.
    """
    if isinstance(trainer, str):
        trainer = trainers.load(trainer)
    watched = replace(
        trainer,
        python_path=(str(_HOOK), *trainer.python_path),
        environment={**trainer.environment, "CHAOSSPOT_TELL": "1"},
    )
    in_objects = trainer.object_store
    if in_objects is not None and in_objects.required:
        raise ValueError(
            f"{trainer.name} keeps its state in an object store alone: it has no files"
        )
    folder = rundir.create(Path(runs), f"crash-points-{trainer.name}", seed)
    cluster = ClusterSpec(group=(Group(count=trainer.min_nodes),))
    bare = Schedule(seed=seed, cluster=cluster)

    def attacked(plan: Schedule, name: str, steps: int) -> Verdict:
        until = None if trainer.final else steps
        return attack(plan, name=name, trainer=watched, steps=until, runs=folder / "attacks")

    first = attacked(bare, "undisturbed", _STEPS)
    events = seen(h.read(Path(first.run) / "history.jsonl"))
    if not first.passed:
        why = first.primary.message if first.primary else str(first.outcome)
        return CrashPoints(
            trainer=trainer.name, folder=str(folder), events=len(events), undisturbed=why
        )
    if not events:
        raise ValueError(
            f"{trainer.name}: no file-system event was seen in {_STEPS} steps: is it a Python "
            "program that saves below CHAOSSPOT_STORE or CHAOSSPOT_FLASH?"
        )
    planned = stops(chosen(events))
    made = []
    for number, stop in enumerate(planned, 1):
        fault = Kill(on=stop.trigger, replace_after_s=0.1)
        verdict = attacked(replace(bare, fault=(fault,)), f"stop-{number}", 4 * _STEPS)
        stopped = judged(stop, verdict)
        made.append(stopped)
        told(stopped, len(planned))
    result = CrashPoints(
        trainer=trainer.name, folder=str(folder), events=len(events), stopped=tuple(made)
    )
    rundir.write(folder / "report.json", msgspec.json.format(msgspec.json.encode(result)))
    return result


def judged(stop: Stop, verdict: Verdict) -> Stopped:
    """What a verdict says of a stop.

    Whether a save that was not reported had been completed is unknown to the oracle of snapshots;
    here it is known to be what the node was stopped in, and that a state is right is for equality
    to say. Such a finding alone does not make the stop unknown.
    """
    unknown = [f.oracle for f in verdict.findings if f.outcome is Outcome.UNKNOWN]
    equal = [f.outcome for f in verdict.findings if f.oracle == "equality"]
    completed = set(unknown) == {"snapshots"} and set(equal) == {Outcome.PASS}
    if verdict.outcome is Outcome.UNKNOWN and completed:
        return Stopped(stop=stop, outcome=Outcome.PASS, run=verdict.run)
    primary = verdict.primary
    return Stopped(
        stop=stop,
        outcome=verdict.outcome,
        oracle=primary.oracle if primary else "",
        message=primary.message if primary else "",
        run=verdict.run,
    )


def seen(records: Iterable[h.Record]) -> list[Event]:
    """The file-system events of a history, in order."""
    found: list[Event] = []
    writes = 0
    for record in records:
        if isinstance(record, h.Other) and record.name == "file":
            deed, path = str(record.extra.get("deed", "")), str(record.extra.get("path", ""))
            writes += deed == "write"
            found.append(
                Event(
                    number=len(found) + 1,
                    deed=deed,
                    path=path,
                    write=writes if deed == "write" else 0,
                )
            )
    return found


def chosen(events: Iterable[Event]) -> list[Event]:
    """Of each sort of event the first and the last, in order."""
    first: dict[tuple[str, str], Event] = {}
    last: dict[tuple[str, str], Event] = {}
    for event in events:
        first.setdefault(event.sort, event)
        last[event.sort] = event
    return sorted({*first.values(), *last.values()}, key=lambda event: event.number)


def stops(events: Iterable[Event]) -> list[Stop]:
    """Before each event, in the middle of each write, and after each.

    After one is before the next, if that is tried as well.
    """
    listed = list(events)
    numbers = {event.number for event in listed}
    found = []
    for event in listed:
        found.append(Stop(event=event, where="before"))
        if event.write:
            found.append(Stop(event=event, where="torn"))
        if event.number + 1 not in numbers:
            found.append(Stop(event=event, where="after"))
    return found
