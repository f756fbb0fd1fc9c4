"""Where nodes live: what every backend can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from chaosspot.schedule import Node

__all__ = ["Cluster", "Gone", "Launch"]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a node runs: one command and one environment per rank; output goes to ``log``."""

    argv: tuple[str, ...]
    environments: tuple[Mapping[str, str], ...]
    log: Path


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A node's whole process tree was seen absent.

    ``t`` is monotonic seconds. ``by_itself``: the tree was empty, or its ranks had ended and what
    they left was given its time, before anything of ours touched the node. ``code``: exit code of
    the first rank that failed, else 0; negative for a signal; None when it could not be learned.
    """

    t: float
    by_itself: bool
    code: int | None


class Cluster(Protocol):
    """Live nodes of one attack. Every method may be called while another is in progress."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill what is left, verified; even when cancelled."""

    def flash(self, name: str) -> Path:
        """The node's own disk; it dies with the node."""

    async def start(self, node: Node, launch: Launch) -> None:
        """Start the node's process tree.

        Raises:
            OSError: the command cannot be started; names the command and why.
        """

    async def kill(self, names: Sequence[str], *, keep_flash: bool = False) -> dict[str, Gone]:
        """SIGKILL the whole trees at once; returns when all are verified gone."""

    async def terminate(self, names: Sequence[str], *, grace_s: float) -> dict[str, Gone]:
        """SIGTERM to every process of the trees, SIGKILL to what is left after ``grace_s``."""

    async def gone(self, name: str) -> Gone:
        """Wait until nothing of the node's tree lives any more, by whatever cause."""

    def alive(self) -> list[Node]:
        """Nodes whose tree lives now, in the order they were started."""
