"""torchft's parts, each with the one thing mended that a short recovery needs.

Found with torchft 0.2.0. When a member dies while the others build their group, they wait for
it, because the client of its TCPStore goes on asking a port that refuses until its timeout.
That, and ranks of a ring that are no neighbours of the dead one, made 5 s waits.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torchft import Manager, ProcessGroupGloo
from torchft.checkpointing.http_transport import HTTPTransport

__all__ = ["Group", "Interrupted", "InterruptibleManager", "QuorumClient", "Transport"]

_NOTICE_CHECK_S = 0.1


class Interrupted(Exception):
    """Waiting for peers was given up because this node has too little time left."""


class Group(ProcessGroupGloo):  # type: ignore[misc]
    """A gloo group that bounds building and collectives separately and has unmistakable keys.

    The keys of a group carry :attr:`salt`: a restarted Lighthouse counts from 1 again and would
    lead ranks to the keys of an old group otherwise.
    """

    def __init__(self, *, build_timeout: timedelta, collective_timeout: timedelta) -> None:
        super().__init__(timeout=build_timeout)
        self._collective_timeout = collective_timeout
        self.salt = ""

    def configure(self, store_addr: str, *args: Any, **kwargs: Any) -> None:
        # A member's store listens as long as its process lives, so refusal means death.
        host, port = store_addr.partition("/")[0].rsplit(":", 1)
        socket.create_connection((host, int(port)), self._timeout.total_seconds()).close()
        super().configure(f"{store_addr}/{self.salt}", *args, **kwargs)

    def _opts_hook(self, opts: Any) -> Any:
        opts.timeout = self._collective_timeout
        return opts


class Transport(HTTPTransport):  # type: ignore[misc]
    """Serves this rank's state to peers under the advertised name, not the machine's."""

    def __init__(self, host: str, timeout: timedelta) -> None:
        self._host = host
        super().__init__(timeout=timeout, num_chunks=0)
        self._server.RequestHandlerClass.log_message = lambda *_: None

    def address(self) -> str:
        return f"http://{self._host}:{self._server.socket.getsockname()[1]}/checkpoint/"


class QuorumClient:
    """Passes calls on to torchft's ManagerClient; keeps the last quorum and salts the group."""

    def __init__(self, client: Any, group: Group) -> None:
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


class InterruptibleManager(Manager):  # type: ignore[misc]
    """A Manager whose wait for a quorum can be given up: :attr:`go_on` is asked every 0.1 s."""

    go_on: Callable[[], bool]

    def wait_quorum(self) -> None:
        pending = self._quorum_future
        while not concurrent.futures.wait([pending], _NOTICE_CHECK_S).done:
            if not self.go_on():
                raise Interrupted
        pending.result()
