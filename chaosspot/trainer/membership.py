"""Who takes part in a step: a thin layer over torchft's Manager.

torchft's Lighthouse hands out *quorums*: a membership with an increasing id, used here as the
generation. In every attempt a rank asks for the quorum, computes its share, sums, and asks
whether to commit. What this layer adds is what keeps a failure short:

- *Whoever sees a failure tears its process group down at once.* A gloo ring tells only the
  neighbours of a dead rank; the others would wait for the collective's timeout.
- A request that the Lighthouse took to its grave is repeated after 3 s; after other RPC errors
  the Manager is built anew, because its bookkeeping does not survive them.

``mended`` holds what had to be changed in torchft itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from torch import Tensor
from torch.distributed import ReduceOp, TCPStore  # type: ignore[attr-defined]

from chaosspot.trainer.config import TrainerError
from chaosspot.trainer.mended import (
    Group,
    Interrupted,
    InterruptibleManager,
    QuorumClient,
    Transport,
)

__all__ = ["Attempt", "Interrupted", "Membership", "MembershipError"]

_log = logging.getLogger(__name__)

_BUILD_TIMEOUT = timedelta(seconds=2)
_HEARTBEAT_INTERVAL = timedelta(milliseconds=100)
_ASK_TIMEOUT_S = 3.0  # one request to the Lighthouse, which waits up to 2 s for stragglers
_RETRY_S = 0.1
_MIN_FAILURES = 5  # a rank that was paused for long gets as many tries as any other


class MembershipError(TrainerError):
    """No quorum within the bounds that were set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """The membership in which one step is attempted."""

    generation: int
    world: int
    rank: int | None
    """This rank's place in 0..world-1; None while it contributes nothing."""
    healed: bool
    """This rank's state came from a peer just now."""


class Membership:
    """This rank's place among its peers.

    Args:
        lighthouse: URL of the Lighthouse.
        replica: name of this rank; peers are ordered by it.
        save, load: give and take the state when a peer heals from this one or the reverse.
        go_on: whether to keep waiting for peers; asked every 0.1 s while waiting.
        collective_timeout_s: longest wait in one sum, and for one peer's state.
        patience_s: how long to go on without a commit before giving up.
    """

    def __init__(
        self,
        *,
        lighthouse: str,
        replica: str,
        advertise_host: str,
        save: Callable[[], dict[str, object]],
        load: Callable[[dict[str, object]], None],
        go_on: Callable[[], bool],
        collective_timeout_s: float,
        patience_s: float,
    ) -> None:
        self._lighthouse = lighthouse
        self._replica = replica
        self._host = advertise_host
        self._save = save
        self._load = load
        self._go_on = go_on
        self._timeout = timedelta(seconds=collective_timeout_s)
        self._patience_s = patience_s
        self._failures = 0  # since the last commit
        self._good_at = time.monotonic()
        self._healed = False
        self._kept_step = 0  # while there is no Manager
        # Peers find each other's sockets here; it lives as long as this process.
        self._store = TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self._manager: InterruptibleManager | None = None

    @property
    def step(self) -> int:
        """The step of the state that this rank tells its peers it has."""
        return int(self._manager.current_step()) if self._manager else self._kept_step

    def move_to(self, step: int) -> None:
        """Tell peers from the next quorum on that this rank has the state after ``step``."""
        self._kept_step = step
        if self._manager is not None:
            self._manager.load_state_dict({"step": step, "batches_committed": step})

    def begin(self) -> Attempt | None:
        """Wait for the next quorum and, when this rank is behind, take a peer's state.

        None when there was no usable quorum this time; ask again.

        Raises:
            Interrupted: ``go_on`` said no.
            MembershipError: nothing could be committed for too long, and not for want of trying.
        """
        self._healed = False
        error = self._ask()
        if error is None:
            manager = self._built()
            return Attempt(
                generation=int(manager._client.quorum.quorum_id),
                world=int(manager.num_participants()),
                rank=manager.participating_rank(),
                healed=self._healed,
            )
        self._failed(error)
        _log.warning("no usable quorum yet, asking again: %s", error)
        time.sleep(_RETRY_S)
        return None

    def _ask(self) -> Exception | None:
        """Ask for one quorum; what went wrong, if anything did."""
        try:
            manager = self._built()
        except (RuntimeError, OSError) as error:  # the Lighthouse cannot be reached
            return error
        try:
            manager.start_quorum(timeout=timedelta(seconds=_ASK_TIMEOUT_S))
        except TimeoutError as error:
            # The request went down with a Lighthouse, or there are not enough peers yet. Asking
            # again under the same name leaves no second self behind at the Lighthouse.
            manager._quorum_future = None
            return error
        except (RuntimeError, OSError) as error:
            self._drop()
            return error
        failed = manager.errored()
        if failed is not None:  # a member died while the group was built or the state fetched
            self._abort_if_failed()
            self._should_commit()  # says no, and makes the next quorum a new generation
            return Exception(str(failed.original_exception))
        return None

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum ``tensor`` (host memory, int64) over the members, in place.

        Never raises for a lost peer: :meth:`commit` will say no, and the values are not to be used.
        """
        self._built().allreduce(tensor, reduce_op=ReduceOp.SUM).wait()
        self._abort_if_failed()

    @property
    def has_time(self) -> bool:
        """Whether this node will be there long enough to go on with its peers."""
        return self._go_on()

    @property
    def broken(self) -> bool:
        """Whether a sum of this attempt failed; none of them is to be used then."""
        return self._built().errored() is not None

    def commit(self) -> bool:
        """Whether this attempt's sum is good and the update is to be applied now."""
        good = self._should_commit()
        if good:
            self._failures, self._good_at = 0, time.monotonic()
        else:
            self._failed("a member was lost")
        return good

    def _should_commit(self) -> bool:
        try:
            return bool(self._built().should_commit())
        except (RuntimeError, OSError) as error:
            _log.warning("commit failed: %s", error)
            self._drop()
            return False

    def abandon(self) -> None:
        """Give up the attempt under way; the members see it fail and ask for the next quorum."""
        self._built().report_error(RuntimeError("attempt abandoned"))
        self._abort_if_failed()
        self.commit()

    def leave(self) -> None:
        """Stop taking part; peers go on without this rank about 1 s later."""
        self._drop()

    def _failed(self, error: object) -> None:
        self._failures += 1
        silent_s = time.monotonic() - self._good_at
        if self._failures >= _MIN_FAILURES and silent_s > self._patience_s:
            raise MembershipError(
                f"no step could be committed for {silent_s:.0f} s with the Lighthouse at "
                f"{self._lighthouse!r}, {self._failures} attempts: {error}"
            )

    def _abort_if_failed(self) -> None:
        manager = self._built()
        if (failed := manager.errored()) is not None:
            _log.warning("attempt failed: %s", str(failed.original_exception).split("\n")[0])
            manager._pg.abort()

    def _built(self) -> InterruptibleManager:
        if self._manager is None:
            self._manager = self._build()
        return self._manager

    def _build(self) -> InterruptibleManager:
        group = Group(build_timeout=_BUILD_TIMEOUT, collective_timeout=self._timeout)
        manager = InterruptibleManager(
            pg=group,
            load_state_dict=self._take,
            state_dict=self._save,
            min_replica_size=1,
            use_async_quorum=False,
            init_sync=True,
            replica_id=self._replica,
            lighthouse_addr=self._lighthouse,
            hostname=self._host,
            timeout=self._timeout,
            quorum_timeout=timedelta(seconds=_ASK_TIMEOUT_S),
            connect_timeout=_BUILD_TIMEOUT,
            heartbeat_interval=_HEARTBEAT_INTERVAL,
            checkpoint_transport=Transport(self._host, self._timeout),
            rank=0,
            world_size=1,
            store_addr=self._host,
            store_port=self._store.port,
        )
        manager.go_on = self._go_on
        manager._client = QuorumClient(manager._client, group)
        manager.load_state_dict({"step": self._kept_step, "batches_committed": self._kept_step})
        return manager

    def _drop(self) -> None:
        if self._manager is not None:
            manager, self._manager = self._manager, None
            self._kept_step = int(manager.current_step())
            manager._pg.abort()
            manager.shutdown(wait=False)

    def _take(self, state: dict[str, object]) -> None:
        self._load(state)
        self._healed = True
