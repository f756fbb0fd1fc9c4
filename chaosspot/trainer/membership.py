"""Who takes part in a step: a thin layer over torchft's Manager.

torchft's Lighthouse hands out *quorums*: a membership with an increasing id, used here as the
generation. In every attempt a rank asks for the quorum, computes its share, sums, and asks
whether to commit. What this layer adds is what keeps a failure short:

- *Whoever sees a failure tears its process group down at once.* A gloo ring tells only the
  neighbours of a dead rank; the others would wait for the collective's timeout.
- Building a group with a member that has just died waits for it; that wait has its own, shorter
  bound than a collective's.
- A group's rendezvous keys carry the step and the members, so that a restarted Lighthouse,
  which counts from 1 again, does not lead ranks to the keys of an old group.
- A request that the Lighthouse took to its grave is repeated after 3 s; after other RPC errors
  the Manager is built anew, because its bookkeeping does not survive them.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import ReduceOp, TCPStore  # type: ignore[attr-defined]
from torchft import Manager, ProcessGroupGloo
from torchft.checkpointing.http_transport import HTTPTransport

from chaosspot.trainer.config import TrainerError

__all__ = ["Attempt", "Interrupted", "Membership", "MembershipError"]

_log = logging.getLogger(__name__)

_BUILD_TIMEOUT = timedelta(seconds=2)
_HEARTBEAT_INTERVAL = timedelta(milliseconds=100)
_ASK_TIMEOUT_S = 3.0  # one request to the Lighthouse, which waits up to 2 s for stragglers
_NOTICE_CHECK_S = 0.1
_RETRY_S = 0.1
_MIN_FAILURES = 5  # a rank that was paused for long gets as many tries as any other


class MembershipError(TrainerError):
    """No quorum within the bounds that were set."""


class Interrupted(Exception):
    """Waiting for peers was given up because this node has too little time left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """The membership in which one step is attempted."""

    generation: int
    world: int
    rank: int | None
    """This rank's place in 0..world-1; None while it contributes nothing."""
    healed: bool
    """This rank's state came from a peer just now."""


class _Group(ProcessGroupGloo):  # type: ignore[misc]
    """A gloo group that bounds building and collectives separately and has unmistakable keys."""

    def __init__(self, *, collective_timeout: timedelta) -> None:
        super().__init__(timeout=_BUILD_TIMEOUT)
        self._collective_timeout = collective_timeout
        self.salt = ""

    def configure(self, store_addr: str, *args: Any, **kwargs: Any) -> None:
        # A member's store listens as long as its process lives. TCPStore's client would go on
        # asking a dead one until its timeout; a refused connection says it at once.
        host, port = store_addr.partition("/")[0].rsplit(":", 1)
        socket.create_connection((host, int(port)), _BUILD_TIMEOUT.total_seconds()).close()
        super().configure(f"{store_addr}/{self.salt}", *args, **kwargs)

    def _opts_hook(self, opts: Any) -> Any:
        opts.timeout = self._collective_timeout
        return opts


class _Transport(HTTPTransport):  # type: ignore[misc]
    """Serves this rank's state to peers under the advertised name, not the machine's."""

    def __init__(self, host: str, timeout: timedelta) -> None:
        self._host = host
        super().__init__(timeout=timeout, num_chunks=0)
        self._server.RequestHandlerClass.log_message = lambda *_: None

    def address(self) -> str:
        return f"http://{self._host}:{self._server.socket.getsockname()[1]}/checkpoint/"


class _Client:
    """Passes calls on to torchft's ManagerClient and keeps the last quorum's details."""

    def __init__(self, client: Any, group: _Group) -> None:
        self._client = client
        self._group = group
        self.quorum: Any = None

    def _quorum(self, *args: Any, **kwargs: Any) -> Any:
        self.quorum = self._client._quorum(*args, **kwargs)
        members = f"{self.quorum.max_step}/{self.quorum.replica_ids}"
        self._group.salt = hashlib.blake2b(members.encode(), digest_size=8).hexdigest()
        return self.quorum

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Manager(Manager):  # type: ignore[misc]
    """A Manager whose wait for a quorum can be given up."""

    go_on: Callable[[], bool]

    def wait_quorum(self) -> None:
        while True:
            try:
                self._quorum_future.result(timeout=_NOTICE_CHECK_S)
                return
            except concurrent.futures.TimeoutError:
                if self._quorum_future.done():
                    raise  # the request's own
                if not self.go_on():
                    raise Interrupted from None


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
        self._manager: _Manager | None = None

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

    def _built(self) -> _Manager:
        if self._manager is None:
            self._manager = self._build()
        return self._manager

    def _build(self) -> _Manager:
        group = _Group(collective_timeout=self._timeout)
        manager = _Manager(
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
            checkpoint_transport=_Transport(self._host, self._timeout),
            rank=0,
            world_size=1,
            store_addr=self._host,
            store_port=self._store.port,
        )
        manager.go_on = self._go_on
        manager._client = _Client(manager._client, group)
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
