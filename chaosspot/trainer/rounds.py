"""What the ranks of a new membership settle before they train: where to go on from."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Literal

import torch

from chaosspot.trainer.agreement import (
    ROW,
    Holdings,
    Reading,
    agree,
    all_lost,
    awaits,
    read_table,
    write_row,
)
from chaosspot.trainer.config import TrainerError
from chaosspot.trainer.membership import Attempt, Membership
from chaosspot.trainer.restore import Recovery, Restored
from chaosspot.trainer.snapshot.worker import Worker

__all__ = ["Rounds"]

_log = logging.getLogger(__name__)

_GATHER_POLL_S = 0.2  # a peer that comes shows in the next quorum
_TELL_S = 0.5  # how often ranks that read tell each other that they still do

Source = Literal["peer", "local", "store"]


class Rounds:
    """One round for every membership: tell what is held, agree, read together, load.

    ``gather_s``: how long, from now on, to wait for the disks of peers that may be coming back.
    """

    def __init__(
        self, membership: Membership, recovery: Recovery, reader: Worker, *, gather_s: float
    ) -> None:
        self._membership = membership
        self._recovery = recovery
        self._reader = reader
        self._settled: int | None = None  # the generation
        self._tired_t = time.monotonic() + gather_s

    def settled(self, attempt: Attempt) -> bool:
        """Whether the members of this attempt have nothing left to agree on."""
        return attempt.generation == self._settled

    def meet(
        self, attempt: Attempt, step: int, load: Callable[[dict[str, object]], None]
    ) -> Source | None:
        """Hold a round in this attempt, in which this rank's memory is at ``step``; where a
        snapshot that was loaded came from, if one was.

        Afterwards the attempt either is settled and goes on, or is over.
        """
        table = self._tell(attempt, step)
        if table is None:
            self._membership.commit()  # says no, and makes the next quorum a new generation
            return None
        reading = agree(table)
        if awaits(table, reading):
            _log.info("waiting for the store, or for peers with the rest of a newer snapshot")
            self._membership.abandon()
            time.sleep(_GATHER_POLL_S)
            return None
        if all_lost(table, reading):
            raise TrainerError(
                "there are snapshots and none can be restored, see the log; remove them to begin "
                "anew"
            )
        if reading is None:
            self._settled = attempt.generation
            return None
        restored = self._read(reading, attempt)
        if restored is None:
            return None
        if not self._membership.commit():
            restored.loan.end(in_doubt=True)  # a sum that failed may not be quite over
            return None
        source = self._load(restored, load, attempt)
        restored.loan.end()
        self._membership.move_to(step if source is None else reading.snapshot.step)
        self._settled = None  # the next attempt shows whether all have come along
        return source

    def _tell(self, attempt: Attempt, step: int) -> list[Holdings] | None:
        """What each rank holds, by rank; None when the attempt failed."""
        table = torch.zeros((attempt.world, ROW), dtype=torch.int64)
        if attempt.rank is not None:
            tired = time.monotonic() >= self._tired_t
            holdings = replace(self._recovery.holdings(step), tired=tired)
            table[attempt.rank] = torch.tensor(write_row(holdings))
        self._membership.all_reduce(table.view(-1))
        return None if self._membership.broken else read_table(table.tolist())

    def _read(self, reading: Reading, attempt: Attempt) -> Restored | None:
        """The whole snapshot, once all have read their parts; None when the attempt failed."""
        rank = -1 if attempt.rank is None else attempt.rank
        future = self._reader.call(lambda: self._recovery.read(reading, rank))
        if not self._all_have_read(future, attempt.world):
            self._membership.abandon()
            future.add_done_callback(_give_back)
            return None
        restored = future.result()
        for tensor in restored.sums():
            self._membership.all_reduce(tensor)
        return restored

    def _all_have_read(self, future: Future[Restored], world: int) -> bool:
        """Wait for everybody, in short sums: a slow disk is no lost peer, and a lost one shows."""
        while True:
            wait([future], _TELL_S)
            done = torch.tensor([int(future.done())])
            self._membership.all_reduce(done)
            if self._membership.broken or not self._membership.has_time:
                return False
            if int(done) == world:
                return True

    def _load(
        self,
        restored: Restored,
        load: Callable[[dict[str, object]], None],
        attempt: Attempt,
    ) -> Source | None:
        snapshot = restored.reading.snapshot
        if not restored.good:
            _log.warning("%s cannot be restored, looking for another", snapshot)
            if restored.whole:
                self._recovery.reject(snapshot)
            return None
        try:
            load(dict(restored.tensors()))
        except TrainerError as error:  # every rank of this job says the same
            raise TrainerError(f"{snapshot}: {error}") from error
        if not restored.reading.flash:
            return "store"
        return "local" if attempt.rank in restored.reading.flash.values() else "peer"


def _give_back(reading: Future[Restored]) -> None:
    if reading.exception() is None:
        reading.result().loan.end()
