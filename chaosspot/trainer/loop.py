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
    is_uploader,
    keep_waiting,
    owned_shards,
    snapshot_due,
)
from chaosspot.trainer.reduction import ExactReduction
from chaosspot.trainer.snapshot.keeper import SnapshotKeeper
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
            load=self.state.load_state_dict,
            go_on=lambda: keep_waiting(self.board.time_left_s()),
            collective_timeout_s=config.collective_timeout_s,
            patience_s=config.patience_s,
        )
        stack.callback(self.membership.leave)
        self.joined = False
        self.attempt = Attempt(generation=0, world=0, rank=None, healed=False)  # the latest
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
            if self.joined or self.join():
                self.step()
        return self.finish()

    def join(self) -> bool:
        """Take part for the first time; False when a snapshot was loaded and peers must be asked
        again, because they may have loaded another one.

        Peers' memory came first, in the quorum. A snapshot beyond it is still right: all states
        of one job lie on one trajectory, and the peers then heal from this rank.
        """
        candidates = self.snapshots.recovery.candidates(self.state.step)
        if candidates:
            self.membership.abandon()  # before reading, so that peers do not wait for it
            if found := self.snapshots.recovery.load(self.state, candidates):
                self.took_over(found.tier)
                self.membership.move_to(self.state.step)
            return False
        self.joined = True
        self._emit_membership("join")
        return True

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
        self.compute(step, self.shards(attempt))
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
        )
        probe.point("step.after-commit")
        if snapshot_due(step, self.config.snapshot_every_steps, self.config.steps):
            self.snapshot(upload=is_uploader(attempt.rank))
        self._report(attempt)

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
        """Update the state with the summed gradients."""
        self.reduction.gradient_into(self.state.gradient)
        self.state.update()

    def current_digest(self) -> str | None:
        """Digest of the state as it is; None when digests are off."""
        if self.config.digest and self.digest is None:
            self.digest = self.state.digest()
        return self.digest

    def snapshot(self, *, upload: bool) -> None:
        """Copy the state, to be written and perhaps uploaded while training goes on."""
        self.snapshots.take(
            world=self.attempt.world,
            generation=self.attempt.generation,
            digest=self.current_digest(),
            upload=upload,
        )

    def drain(self) -> TrainResult:
        """Leave between two steps and make the last one durable before the deadline.

        The state is copied before leaving and written after it: peers, who ask for the next
        quorum meanwhile, do not wait for a disk or a store.
        """
        self.board.report()
        self._emit_membership("drain")
        step = self.state.step
        plan = drain_plan(
            time_left_s=self.board.time_left_s() or 0.0,
            on_flash=step == 0 or self.snapshots.holds(step),
            in_store=step == 0,
            has_store=self.snapshots.has_store,
        )
        if plan.snapshot:
            self.snapshot(upload=False)
        self.leave()
        self.snapshots.flush(step, plan)
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
