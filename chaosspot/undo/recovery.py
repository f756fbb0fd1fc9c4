"""What dead runs left: undone at every start, and by ``chaosspot cleanup``."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec

from chaosspot.undo import docker, ending, journal, procfs, state
from chaosspot.undo.kinds import Containers

__all__ = ["Healed", "heal_dead_runs", "heal_lost_containers"]

_ABANDONED_S = 3600.0  # a lease takes milliseconds to get its name or to be removed


class Healed(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose harness died, and what was undone for it.

    ``run`` and ``owner_pid`` are None when the lease does not tell any more. With ``problems``
    something may still be there; what can be tried again is tried at the next start.
    """

    lease: str
    run: Path | None
    owner_pid: int | None
    by_guardian: bool
    done: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        run = f"run {self.run}" if self.run else f"a run (lease {self.lease})"
        owner = f" of process {self.owner_pid}" if self.owner_pid is not None else ""
        who = "its guardian" if self.by_guardian else "this start"
        lines = [f"{run}{owner} had died; {who} cleaned up: {'; '.join(self.done) or 'nothing'}"]
        return "\n  ".join([*lines, *(f"PROBLEM: {text}" for text in self.problems)])


def heal_dead_runs() -> list[Healed]:
    """Undo what dead runs left, and tell what their guardians undid.

    Runs that live are not touched: they or their guardians hold the lock.

    Raises:
        StateError: the directory of all leases is none, or may not be read.
    """
    healed = []
    for directory in _listed(state.leases()):
        if directory.name.startswith("."):
            _remove_abandoned(directory)
            continue
        if not directory.is_dir() or (lock := state.take_lock(directory)) is None:
            continue
        try:
            healed.append(_heal(directory))
        finally:
            os.close(lock)
    return healed


def heal_lost_containers() -> list[Healed]:
    """Remove what a Docker daemon has of runs of this user that have no lease any more.

    A daemon may make a container that was asked for by a harness that died, after all of the run
    was healed. Runs that have a lease are not touched; neither is anything when no daemon answers.
    """
    home = state.leases()
    healed = []
    try:
        path = docker.socket_path()
        if not docker.reachable(path):
            return []
        lost = {name for name in docker.leases_of(path, str(home)) if not (home / name).exists()}
    except OSError:
        return []
    for name in sorted(lost):
        done, failed = "", ""
        try:
            done = Containers(socket=path, lease=name).heal() or ""
        except OSError as error:
            failed = str(error)
        healed.append(
            Healed(
                lease=name,
                run=None,
                owner_pid=None,
                by_guardian=False,
                done=(done,) if done else (),
                problems=(failed,) if failed else (),
            )
        )
    return healed


def _listed(home: Path) -> list[Path]:
    try:
        return sorted(home.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        what = f"the state directory {str(home)!r} cannot be used: {error.strerror}"
        raise state.StateError(what) from error


def _heal(directory: Path) -> Healed:
    """Undo one dead run, with its lock held."""
    owner: state.Owner | None = None
    rescue: state.Rescue | None = None
    damaged: list[str] = []
    try:
        owner = state.read(directory / "lease.json", state.Owner)
        if (directory / "healed.json").exists():
            rescue = state.read(directory / "healed.json", state.Rescue)
    except (OSError, ValueError) as error:
        damaged.append(f"broken lease: {error}")
    promised, lines = journal.read(directory / "undo.jsonl")
    damaged += lines
    records = journal.Journal(directory / "undo.jsonl")
    done, failed = journal.heal(promised, records)
    records.close()
    try:
        # Found by the cookie alone, which is the directory's name: needs no record to be whole.
        if pids := ending.end(None, procfs.RUN, directory.name):
            done.append(f"killed processes of no node: {', '.join(map(str, pids))}")
    except OSError as error:
        failed.append(str(error))
    if not failed:
        _remove(directory, keep=bool(damaged))
    return Healed(
        lease=directory.name,
        run=Path(owner.run) if owner else None,
        owner_pid=owner.pid if owner else None,
        by_guardian=rescue is not None,
        done=(*(rescue.healed if rescue else ()), *done),
        # What its guardian could not do was just tried again, and is told once if it still fails.
        problems=(*damaged, *failed),
    )


def _remove(directory: Path, *, keep: bool) -> None:
    """Take a lease away; one that was broken is kept aside for people to look at."""
    if keep:
        aside = directory.parents[1] / "broken" / directory.name
        aside.parent.mkdir(exist_ok=True)
        directory.rename(aside)
        return
    hidden = directory.with_name(f".closed-{directory.name}")
    directory.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _remove_abandoned(directory: Path) -> None:
    """A lease whose owner died before it was complete or while it was removed: it owes nothing."""
    try:
        if time.time() - directory.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(directory, ignore_errors=True)
    except FileNotFoundError:
        pass
