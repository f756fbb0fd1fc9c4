"""Where nodes live: what every backend can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

import msgspec

from chaosspot.schedule import Node

__all__ = ["Cluster", "Gone", "Launch"]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a node runs: one command and one environment per rank; output goes to ``log``.

    ``keep_flash``: the flash outlives a tree that ends by itself, for the next incarnation.
    """

    argv: tuple[str, ...]
    environments: tuple[Mapping[str, str], ...]
    log: Path
    keep_flash: bool = False


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
        """SIGKILL the whole trees at once; returns when all are verified gone.

        The flash goes too unless it is kept, even that of a tree that had ended by itself.
        """

    async def terminate(
        self, names: Sequence[str], *, grace_s: float, scope: Literal["tree", "main"] = "tree"
    ) -> dict[str, Gone]:
        """SIGTERM, and SIGKILL to what is left of the trees after ``grace_s``; takes the flash.

        The signal goes to every process of the trees, or to the main process of each rank.
        """

    async def pause(self, names: Sequence[str]) -> dict[str, float]:
        """SIGSTOP every process of the trees; when (monotonic seconds) each was seen stopped.

        Nodes that are gone are left out. A promise to resume the others is on disk before the
        first one is stopped. Pauses of one node may overlap: it goes on after the last.
        """

    async def resume(self, names: Sequence[str]) -> None:
        """SIGCONT what :meth:`pause` stopped, verified; nothing for nodes that are gone."""

    async def kill_child(self, name: str) -> float | None:
        """SIGKILL one descendant of a rank's main process, never a main process itself.

        The youngest leaf of the tree is taken. Returns when (monotonic seconds) it was seen gone,
        None when there is no such process.
        """

    async def fill_flash(self, name: str) -> float | None:
        """Leave no space on the node's flash.

        Returns when (monotonic seconds) it was full, None when the node and its flash are gone.

        Raises:
            OSError: the node's flash is not limited, or could not be filled.
        """

    async def free_flash(self, name: str) -> None:
        """Give back the space that :meth:`fill_flash` took; nothing for nodes that are gone."""

    async def gone(self, name: str) -> Gone:
        """Wait until nothing of the node's tree lives any more, by whatever cause."""

    def alive(self) -> list[Node]:
        """Nodes whose tree lives now, in the order they were started."""
