"""Explores a real trainer in a directory of its own, from the first attack or after a kill."""

from __future__ import annotations

import secrets
import shlex
import tempfile
from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chaosspot import toml, trainers
from chaosspot.conductor import rundir
from chaosspot.explore.budget import Budget
from chaosspot.explore.exploring import Exploration, Explorer, Watcher
from chaosspot.explore.ground import Ground, ground_of
from chaosspot.explore.journal import Header, Journal
from chaosspot.explore.told import Coverage, coverage
from chaosspot.explore.trial import key_of
from chaosspot.explore.trying import Trying
from chaosspot.nodes import Cloud, ClusterSpec, Group, StoreKind
from chaosspot.schedule import Schedule
from chaosspot.trainers import Trainer

__all__ = ["Report", "explore"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an exploration came to, what it exercised, and where it is.

    ``file`` holds the schedule that was found, ``kept`` its copy in the user's folder, and
    ``replay`` the command that attacks with it.
    """

    trainer: str
    seed: int
    folder: str
    exploration: Exploration
    coverage: Coverage
    file: str = ""
    kept: str = ""
    replay: str = ""


def explore(
    trainer: Trainer | str = "reference",
    *,
    budget: Budget | str = "200",
    kinds: Collection[str] | None = None,
    min_nodes: int | None = None,
    max_nodes: int | None = None,
    cloud: Cloud | None = None,
    store: StoreKind | None = None,
    seed: int | None = None,
    runs: Path | str = "runs",
    keep: Path | str | None = None,
    resume: Path | str | None = None,
    watcher: Watcher | None = None,
) -> Report:
    """Search for a schedule that the trainer fails, and make it as small as it goes.

    Args:
        trainer: a description, or the name or path of one.
        budget: so many attacks (``"200"``), shrinking and replays included, or a time (``"10m"``).
        kinds, min_nodes, max_nodes, cloud, store: what may be drawn; all that suits the trainer.
        seed: decides what is tried; chosen and recorded without one.
        runs: where the directory of the exploration is made.
        keep: a folder into which a schedule that was found is copied; made if it is missing.
        resume: the directory of an exploration that was killed or ran out of its budget, to go on
            with; trainer, seed and what may be drawn are then its own.
        watcher: told what happens while it does.

    Raises:
        ValueError: nothing can be drawn, or an argument makes no sense.
        ContentError, FileError: the trainer cannot be read.
        JournalError: what is to be resumed is missing, in use or damaged.
        RunError, StateError: a directory cannot be made.
        StartError: the trainer's command cannot be started.
        KeyboardInterrupt: it was told to stop; everything is healed, and it can be resumed.
    """
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    if keep is not None:
        _usable(Path(keep))
    if resume is not None:
        folder = Path(resume)
        journal = Journal.resume(folder / "journal.jsonl")
    else:
        named = trainer if isinstance(trainer, str) else trainer.name
        if isinstance(trainer, str):
            trainer = trainers.load(trainer)
        ground = ground_of(
            trainer,
            kinds=kinds,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            cloud=cloud,
            store=store,
            runs=Path(runs),
        )
        ground = replace(ground, clusters=few(ground))
        seed = secrets.randbelow(2**31) if seed is None else seed
        folder = rundir.create(Path(runs), f"explore-{trainer.name}", seed)
        header = Header(trainer=trainer, named=named, ground=ground, seed=seed)
        journal = Journal.create(folder / "journal.jsonl", header)
    with journal:
        return _explored(folder, journal, budget, keep, watcher)


def _usable(keep: Path) -> None:
    """Make the folder, and be sure that a file can be written there: hours may go by before it is.

    Raises:
        RunError: with the path and the reason.
    """
    try:
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=keep):
            pass
    except OSError as error:
        raise rundir.RunError(
            f"cannot keep schedules in {str(keep)!r}: {error.strerror or error}"
        ) from error


def few(ground: Ground) -> tuple[ClusterSpec, ...]:
    """A few clusters that stand for all: each needs an undisturbed twin of its own."""
    least, most = ground.min_nodes, ground.max_nodes
    cloud, store = ground.cloud or "aws", ground.store or "directory"

    def of(*groups: Group) -> ClusterSpec:
        return ClusterSpec(cloud=cloud, store=store, group=groups)

    sizes = sorted({least, max(least, min(most, 3)), *([most] if most != 4 else [])})
    found = [of(Group(count=n, zones=("a", "b")[:n])) for n in sizes]
    if most > 2:  # two families
        found.append(
            of(
                Group(count=most - most // 2, zones=("a", "b")),
                Group(count=most // 2, zones=("a", "b"), family="g5.48xlarge"),
            )
        )
    if ground.flash_bytes is not None:
        limited = Group(count=least, flash_bytes=ground.flash_bytes)
        found = [of(limited)] if ground.kinds == ("disk-full",) else [*found, of(limited)]
    return tuple(found)


def _explored(
    folder: Path,
    journal: Journal,
    budget: Budget,
    keep: Path | str | None,
    watcher: Watcher | None,
) -> Report:
    header = journal.header
    trying = Trying(header.trainer, folder / "attacks")
    for entry in journal.entries:
        if entry.purpose == "undisturbed":
            trying.learn(entry.trial)
    explorer = Explorer(
        ground=header.ground,
        attack=trying,
        journal=journal,
        budget=budget,
        seed=header.seed,
        watcher=watcher,
    )
    try:
        came_to = explorer.run()
    except KeyboardInterrupt as told:
        how = f"; go on with: chaosspot explore --resume {folder}"
        raise KeyboardInterrupt(f"{told or 'interrupted'}{how}") from None
    report = Report(
        trainer=header.trainer.name,
        seed=header.seed,
        folder=str(folder),
        exploration=came_to,
        coverage=coverage(journal.entries, header.ground),
    )
    report = _saved(report, header, folder, None if keep is None else Path(keep))
    rundir.write(folder / "report.json", msgspec.json.format(msgspec.json.encode(report)))
    return report


def _saved(report: Report, header: Header, folder: Path, keep: Path | None) -> Report:
    """The report, with the files that hold what was found or what was worst."""
    came_to, trainer = report.exploration, header.trainer
    if came_to.worst is not None:
        rundir.write(folder / "worst.toml", toml.dumps(came_to.worst.schedule).encode())
    if came_to.found is None:
        return report
    plan = _titled(came_to.found.schedule, trainer, came_to.found.trial.oracle)
    text = toml.dumps(plan).encode()
    rundir.write(folder / "found.toml", text)
    kept = ""
    if keep is not None:
        path = keep / f"{trainer.name}-{came_to.found.trial.oracle}-{key_of(plan)}.toml"
        rundir.write(path, text)
        kept = str(path)
    found = str(folder / "found.toml")
    argv = ("chaosspot", "attack", kept or found, "--trainer", header.named or trainer.name)
    return replace(report, file=found, kept=kept, replay=shlex.join(argv))


def _titled(plan: Schedule, trainer: Trainer, oracle: str) -> Schedule:
    return replace(plan, title=f"Found by exploration: {trainer.name} fails by {oracle}")
