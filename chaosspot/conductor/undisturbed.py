"""Finds the twins of an attacked run: in the cache, or by running them now."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chaosspot import history as h
from chaosspot.conductor import rundir, twins
from chaosspot.conductor.backends import Backend
from chaosspot.conductor.feed import Feed
from chaosspot.conductor.observer import Observer
from chaosspot.conductor.rundir import evidence_of
from chaosspot.conductor.stage import Stage, StartError
from chaosspot.conductor.twins import Twin
from chaosspot.oracles import Evidence, checkpoint, equality, loss
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import Expectation, Schedule
from chaosspot.trainers import Trainer
from chaosspot.undo import Lease
from chaosspot.verdict import Outcome

__all__ = ["find_twins"]

# To which step another twin agreed with one, by the sum of its history, while this process ran: a
# search, or an attack that is repeated, would find that out again for every failure.
_AGREED: dict[bytes, int] = {}


async def find_twins(
    run: Path,
    plan: Schedule,
    trainer: Trainer,
    lease: Lease,
    watcher: Observer,
    backend: Backend,
) -> None:
    """Put ``twin.jsonl`` into the run, and ``twin-2.jsonl`` and so on where a promise needs more.

    With a final checkpoint, ``final.json`` says how it differs from the twin's. When the attacked
    run differs from its twin, another one decides whether the trainer is exact at all, once in a
    process; if the twins differ from each other, ``twin-differs.jsonl`` is kept as proof. Nothing
    is run when no fault had any effect.
    """
    records = h.read(run / "history.jsonl")
    chain = Lineage(records).commits
    wanted = _wanted(trainer)
    harmless = plan.fault and not any(isinstance(r, h.FaultEffect) for r in records)
    if not chain or not wanted or harmless:  # nothing was proved that a twin could confirm
        return
    steps = trainer.final.at_step if trainer.final else max(chain)
    search = _Search(run, plan, trainer, lease, watcher, steps, backend)
    await search.first()
    for number in range(2, wanted + 1):
        rundir.write(run / f"twin-{number}.jsonl", (await search.get(number)).history)
    search.close()


def _wanted(trainer: Trainer) -> int:
    if trainer.promises.loss_within is not None:
        return loss.TWINS
    return 1 if trainer.promises.exact != "none" or trainer.final else 0


class _Search:
    """The twins of one run, by number from 1, made as far as they are not kept."""

    def __init__(
        self,
        run: Path,
        plan: Schedule,
        trainer: Trainer,
        lease: Lease,
        watcher: Observer,
        steps: int,
        backend: Backend,
    ) -> None:
        self._backend = backend
        self._run = run
        self._plan = plan
        self._trainer = trainer
        self._lease = lease
        self._watcher = watcher
        self._steps = steps
        self._checkpoint = run / "twin-checkpoint"

    def close(self) -> None:
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    async def first(self) -> None:
        """The twin that states and weights are compared with."""
        path = self._kept_at()
        kept = twins.cached(path, self._steps, self._trainer.final)
        known = kept or await self._make(path)
        self._lay_beside(known)
        agreed = _AGREED.get(_sum(known), 0) >= self._steps
        if agreed or not _differs(evidence_of(self._run)):
            return
        if kept:  # it may be of other code or data
            known = await self._make(path)
            self._lay_beside(known)
            if not _differs(evidence_of(self._run)):
                return
        second = await self._make(None)
        final = self._trainer.final
        if twins.differ(known, second, ignore=final.ignore if final else ()):
            rundir.write(self._run / "twin-differs.jsonl", second.history)
        else:
            _AGREED[_sum(known)] = min(map(twins.reach, (known.history, second.history)))

    async def get(self, number: int) -> Twin:
        """One more twin, whose losses are compared."""
        path = self._kept_at(number)
        return twins.cached(path, self._steps, None) or await self._make(path)

    def _kept_at(self, number: int = 1) -> Path:
        """Containers of this machine's own programs come to what its processes come to."""
        image = self._backend.image
        return twins.cache_path(self._trainer, self._plan.cluster, number, image=image)

    def _lay_beside(self, twin: Twin) -> None:
        rundir.write(self._run / "twin.jsonl", twin.history)
        if (final := self._trainer.final) is None or twin.checkpoint is None:
            return
        from chaosspot.conductor.weights import compare  # numpy: not at every start of the command

        ours = self._run / "store" / final.checkpoint
        compared = compare(final.checkpoint, ours, twin.checkpoint, ignore=final.ignore)
        rundir.write(self._run / "final.json", msgspec.json.format(msgspec.json.encode(compared)))

    async def _make(self, path: Path | None) -> Twin:
        """Run the trainer undisturbed, and keep it at ``path`` if it got as far as it should."""
        final = self._trainer.final
        steps = self._steps if final else twins.goal(self._steps)
        folder = self._run / "twin"
        folder.mkdir()
        try:
            history = await self._play(folder, steps)
            saved = folder / "store" / final.checkpoint if final else None
            twin = Twin(history=history, checkpoint=self._moved(saved) if saved else None)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if path is not None and twins.reaches(history, self._steps):
            twins.keep(path, twin)
        return twin

    def _moved(self, saved: Path) -> Path:
        """Where a twin's checkpoint is after its folder is gone, if it left one at all."""
        place = self._checkpoint / str(len(list(self._checkpoint.glob("*")))) / saved.name
        if saved.exists():
            place.parent.mkdir(parents=True)
            saved.rename(place)
        return place

    async def _play(self, folder: Path, steps: int) -> bytes:
        """Run the trainer undisturbed in ``folder``; returns its history."""
        watcher = self._watcher
        watcher.twin(None, steps)
        with h.Writer(folder / "history.jsonl") as writer:
            feed = Feed(writer, lambda record: watcher.twin(record, steps))
            stage = Stage(
                folder=folder,
                schedule=replace(self._plan, fault=(), expect=Expectation()),
                name="twin",
                trainer=self._trainer,
                seed=self._plan.seed or 0,
                steps=steps,
                lease=self._lease,
                feed=feed,
                backend=self._backend,
            )
            try:
                await stage.play()
            except (StartError, OSError) as error:
                if getattr(error, "filename", None) is not None:
                    raise
                # A node did not start, though it did before: the run itself can be judged.
                feed.note(h.RunStop, reason=str(error))
        return (folder / "history.jsonl").read_bytes()


def _sum(twin: Twin) -> bytes:
    return hashlib.blake2b(twin.history, digest_size=16).digest()


def _differs(evidence: Evidence) -> bool:
    findings = (*equality.check(evidence), *checkpoint.check(evidence))
    return any(finding.outcome is Outcome.FAIL for finding in findings)
