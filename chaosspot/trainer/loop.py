"""The training loop of one rank.

An *attempt* is: quorum, own share of the gradients, exact sum, commit, update. It either commits
on this rank or leaves its state untouched and is made again. Between attempts, and only there,
the rank snapshots, joins, drains and leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Literal

import torch

from chaosspot import probe
from chaosspot.trainer.config import (
    InputError,
    StepReport,
    TrainConfig,
    TrainerError,
    TrainResult,
)
from chaosspot.trainer.data import ByteData
from chaosspot.trainer.lighthouse import local_url, start_lighthouse
from chaosspot.trainer.membership import Attempt, Membership
from chaosspot.trainer.mended import Interrupted
from chaosspot.trainer.notice import NoticeBoard, sigterm_is_a_notice
from chaosspot.trainer.plan import (
    drain_plan,
    keep_waiting,
    owned_shards,
    snapshot_due,
    snapshot_now,
)
from chaosspot.trainer.reduction import ExactReduction, Votes
from chaosspot.trainer.rounds import Rounds
from chaosspot.trainer.snapshot.keeper import SnapshotKeeper
from chaosspot.trainer.snapshot.parts import Part, SnapshotId
from chaosspot.trainer.snapshot.worker import Worker
from chaosspot.trainer.state import TrainState
from chaosspot.trainer.watcher import Watcher

__all__ = ["Trainer", "train"]

_log = logging.getLogger(__name__)

_LAST_SNAPSHOT_S = 60.0  # for the last snapshot of a finished run to become durable


def train(
    config: TrainConfig,
    *,
    on_step: Callable[[StepReport], None] | None = None,
    kind: type[Trainer] | None = None,
) -> TrainResult:
    """Train until the last step, or until this node is to go.

    Args:
        on_step: called after every commit of this rank, in the training thread.
        kind: the class that does it; one that overrides a method of :class:`Trainer`.

    Raises:
        InputError: an option or the data file cannot be used.
        TrainerError: no peers, or a gradient that is not finite; the message says what to do.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda', but torch finds no CUDA device here")
    torch.set_num_threads(config.threads)
    reason = "error"
    try:
        with ExitStack() as stack:
            result = (kind or Trainer)(config, stack, on_step).run()
            reason = result.reason
    finally:
        probe.emit("exit", reason=reason)
    return result


class Trainer:
    """One rank. ``stack`` owns its threads, files and servers and ends them in reverse order."""

    def __init__(
        self,
        config: TrainConfig,
        stack: ExitStack,
        on_step: Callable[[StepReport], None] | None = None,
    ) -> None:
        self.config = config
        self.data = stack.enter_context(
            ByteData(
                config.data,
                seq_len_bytes=config.seq_len_bytes,
                rows=config.micro_batch_rows,
                seed=config.seed,
            )
        )
        self.board = NoticeBoard()
        stack.enter_context(sigterm_is_a_notice(self.board, config.sigterm_grace_s))
        if config.metadata_endpoint:
            provider = config.metadata_provider
            watcher = Watcher(config.metadata_endpoint, self.board, provider=provider)
            stack.enter_context(watcher)
        self.device = torch.device(config.device)
        self.state = TrainState(config, self.device)
        self.reduction = ExactReduction(self.state.n, config.micro_shards, self.device)
        self.snapshots = SnapshotKeeper(config, self.state, config.job_id(self.data.id), stack)
        lighthouse = config.lighthouse
        if lighthouse is None:
            server = start_lighthouse("127.0.0.1:0")
            stack.callback(server.shutdown)
            lighthouse = local_url(server)
        self.membership = Membership(
            lighthouse=lighthouse,
            replica=config.replica,
            advertise_host=config.advertise_host,
            save=self.state.state_dict,
            load=self.load,
            go_on=lambda: keep_waiting(self.board.time_left_s()),
            collective_timeout_s=config.collective_timeout_s,
            patience_s=config.patience_s,
        )
        stack.callback(self.membership.leave)
        reader = stack.enter_context(Worker("restore"))
        self.rounds = Rounds(
            self.membership, self.snapshots.recovery, reader, gather_s=config.gather_s
        )
        self.joined = False
        self.attempt = Attempt(generation=0, world=0, rank=None, healed=False)  # the latest
        self.staying = 0  # other members who had no notice at the last step
        self.leaving = 1  # members who leave together, this one included
        self.put_off = False  # a snapshot that was due after the last step
        self.digest: str | None = None
        self.loss: float | None = None
        self.restored: list[tuple[int, str]] = []
        self._on_step = on_step
        self._committed_at = time.monotonic()

    def run(self) -> TrainResult:
        """Make attempts until the last step is committed or a notice has come."""
        while self.state.step < self.config.steps:
            self.board.report()
            if self.board.time_left_s() is not None:
                return self.drain()
            if not self.joined:
                self.snapshots.recovery.look()
            try:
                attempt = self.membership.begin()
            except Interrupted:
                return self.drain()
            if attempt is None:
                continue
            self.attempt = attempt
            if self.attempt.healed:
                self.took_over("peer")
            if self.rounds.settled(attempt) or self.meet():
                self.step()
        return self.finish()

    def meet(self) -> bool:
        """Come together with the others of a new membership; False when peers must be asked again.

        Peers' memory came first, in the quorum. A snapshot beyond everybody's memory is still
        right, because all states of one job lie on one trajectory: all go on from it.
        """
        found = self.rounds.meet(self.attempt, self.state.step, self.load)
        if found is not None:
            self.took_over(found)
        if not self.rounds.settled(self.attempt):
            return False
        if not self.joined:
            self.joined = True
            self._emit_membership("join")
        return True

    def load(self, saved: dict[str, object]) -> None:
        """Take over a state, once what is being copied of the present one is safe."""
        self.snapshots.stage.hold_updates()
        self.state.load_state_dict(saved)

    def took_over(self, source: Literal["peer", "local", "store"]) -> None:
        """Account for a state that came from elsewhere. At step 0 peers only agree on a start."""
        self.digest = None
        if self.state.step > 0:
            self.restored.append((self.state.step, source))
            probe.emit("restore", step=self.state.step, source=source)

    def step(self) -> None:
        """One attempt at the next step."""
        step = self.state.step + 1
        attempt = self.attempt
        if self.membership.step != self.state.step:
            raise TrainerError(
                f"peers were told step {self.membership.step}, the state is of {self.state.step}"
            )
        parent = self.current_digest()
        probe.emit("begin", step=step, generation=attempt.generation, world=attempt.world)
        began = time.monotonic()
        self.compute(step, self.shards(attempt))
        self.vote(step)
        busy_s = time.monotonic() - began
        probe.point("step.before-allreduce")
        self.membership.all_reduce(self.reduction.to_host())
        probe.point("step.before-commit")
        if not self.membership.commit():
            return
        self.apply()
        self.digest = None
        self.loss = self.reduction.loss()
        probe.emit(
            "commit",
            step=step,
            generation=attempt.generation,
            world=attempt.world,
            loss=self.loss,
            digest=self.current_digest(),
            parent=parent,
            samples=self.reduction.samples(),
            busy_s=round(busy_s, 6),
        )
        probe.point("step.after-commit")
        votes = self.reduction.votes()
        all_leave = votes.leave == attempt.world
        self.staying = attempt.world - max(1, votes.leave)
        self.leaving = votes.leave if all_leave else 1
        now = snapshot_now(step, self.config.steps, wanting=votes.snapshot, busy=votes.busy)
        if votes.snapshot and not now and not self.put_off:
            behind = f"disks of {votes.busy} of {attempt.world} ranks are behind"
            _log.warning("snapshot of step %d put off: %s", step, behind)
        self.put_off = votes.snapshot > 0 and not now
        last = all_leave or step >= self.config.steps
        if now or all_leave:
            # What all ranks upload is complete one day; if each skipped others, nothing would be.
            self.snapshot(self.part(attempt.world), upload=last or not votes.uploading)
        self._report(attempt)

    def vote(self, step: int) -> None:
        """Tell the others what this rank wants after the step."""
        at_risk = self.snapshots.at_risk(self.attempt.world)
        due = snapshot_due(
            step,
            self.config.steps,
            self.config.cadence,
            since_s=self.snapshots.since_s,
            stall_s=self.snapshots.stage.stall_s,
            at_risk=at_risk,
            put_off=self.put_off,
        )
        leave = self.board.time_left_s() is not None
        self.reduction.vote(Votes(due, leave, self.snapshots.busy, self.snapshots.uploading))

    def part(self, count: int) -> Part:
        """This rank's part of a snapshot of the present state that ``count`` ranks take."""
        at = self.attempt
        index = at.rank if at.rank is not None and count > 1 else 0
        return Part(SnapshotId(self.state.step, at.generation, count), index)

    def shards(self, attempt: Attempt) -> Iterable[int]:
        """Micro-shards of the global batch that this rank computes."""
        return owned_shards(attempt.rank, attempt.world, self.config.micro_shards)

    def compute(self, step: int, shards: Iterable[int]) -> None:
        """Fill the reduction's buffer with the gradients and losses of ``shards``."""
        self.reduction.clear()
        for shard in shards:
            self.state.gradient.zero_()
            loss = self.state.model.loss(self.data.batch(step, shard).to(self.device))
            loss.backward()  # type: ignore[no-untyped-call]
            self.reduction.add(shard, self.state.gradient, loss)

    def apply(self) -> None:
        """Update the state with the summed gradients, once what is being copied is safe."""
        self.snapshots.stage.hold_updates()
        self.reduction.gradient_into(self.state.gradient)
        self.state.update()

    def current_digest(self) -> str | None:
        """Digest of the state as it is; None when digests are off."""
        if self.config.digest and self.digest is None:
            self.digest = self.state.digest()
        return self.digest

    def snapshot(self, part: Part, *, upload: bool) -> None:
        """Copy the state; its part is written and perhaps uploaded while training goes on."""
        self.snapshots.take(part, digest=self.current_digest(), upload=upload)

    def drain(self) -> TrainResult:
        """Leave between two steps and make the last one durable before the deadline.

        The state is copied before leaving and written after it: peers, who ask for the next
        quorum meanwhile, do not wait for a disk or a store.
        """
        self.board.report()
        self._emit_membership("drain")
        plan = drain_plan(
            time_left_s=self.board.time_left_s() or 0.0,
            staying=self.staying,
            leaving=self.leaving,
            total_bytes=self.snapshots.total_bytes,
            has_store=self.snapshots.has_store,
            rates=self.snapshots.rates,
        )
        part = self.part(plan.parts) if plan.parts and self.state.step else None
        probe.emit(
            "drain-plan",
            saves=0 if part is None else part.of.count,
            predicted_s=plan.predicted_s,
            margin_s=plan.margin_s,
        )
        if part is not None:
            self.snapshot(part, upload=False)
        self.leave()
        if part is not None:
            self.snapshots.flush(part, plan)
        return self._result("drained")

    def finish(self) -> TrainResult:
        """Leave after the last step and wait for its snapshot."""
        self.leave()
        if not self.snapshots.settle(_LAST_SNAPSHOT_S):
            _log.warning("the last snapshot is not durable after %g s", _LAST_SNAPSHOT_S)
        self.board.report()
        return self._result("finished")

    def leave(self) -> None:
        """Leave the membership; peers go on without this rank."""
        probe.point("drain.before-leave")
        self.membership.leave()
        self._emit_membership("leave")

    def _emit_membership(self, event: str) -> None:
        at = self.attempt
        probe.emit(event, step=self.state.step, generation=at.generation, world=at.world)

    def _report(self, attempt: Attempt) -> None:
        now = time.monotonic()
        seconds, self._committed_at = now - self._committed_at, now
        if self._on_step and self.loss is not None:
            self._on_step(
                StepReport(
                    step=self.state.step,
                    loss=self.loss,
                    generation=attempt.generation,
                    world=attempt.world,
                    digest=self.digest,
                    seconds=seconds,
                )
            )

    def _result(self, reason: Literal["finished", "drained"]) -> TrainResult:
        return TrainResult(
            step=self.state.step,
            loss=self.loss,
            digest=self.current_digest(),
            reason=reason,
            restored=tuple(self.restored),
        )
