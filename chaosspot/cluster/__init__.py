"""Where nodes live: what every backend can do."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

import msgspec

from chaosspot.schedule import Node, Side

__all__ = ["Cluster", "Cut", "Gone", "Isolated", "Launch", "Network", "Place"]


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


class Network(Protocol):
    """A network that a node has for itself, seen from outside. Its methods block."""

    @property
    def address(self) -> str:
        """The node's address, by which it is reached in its own network."""

    def bind(self, host: str, port: int) -> socket.socket:
        """A stream socket bound in the node's network, served wherever it is listened on.

        Raises:
            OSError: the address cannot be bound.
        """

    def caller(self) -> socket.socket:
        """A stream socket that connects from the node's network."""

    def listens(self, port: int) -> bool:
        """Whether a process of the node listens at that port."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a life of a node takes place.

    ``network`` is None where nodes share that of the harness. ``environment`` is what ranks need
    to know of it; ``python`` the interpreter that is there.
    """

    network: Network | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable


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

    def coordinator_address(self, seed: str) -> str:
        """HOST:PORT where a coordinator is to listen, and is found by the others."""

    async def boot(self, node: Node, *, log: Path) -> Place:
        """Make the place of the node's next life, which :meth:`start` then fills.

        Raises:
            OSError: it cannot be made; says why.
            ValueError: the node lives, or its name cannot be used.
        """

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
        self,
        names: Sequence[str],
        *,
        grace_s: float,
        scope: Literal["tree", "main"] = "tree",
        sent: Callable[[], None] = lambda: None,
    ) -> dict[str, Gone]:
        """SIGTERM, and SIGKILL to what is left of the trees after ``grace_s``; takes the flash.

        The signal goes to every process of the trees, or to the main process of each rank;
        ``sent`` is called when it is on its way.
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

    async def slow_flash(self, name: str, write_bytes_per_s: int) -> float | None:
        """Let the node write no faster than that to its flash; the lowest of several limits holds.

        Returns when (monotonic seconds) that was done, None when the node is gone.

        Raises:
            OSError: the flash cannot be slowed.
        """

    async def mend_flash(self, name: str) -> int:
        """Take back one :meth:`slow_flash`; how many bytes the node wrote since the first."""

    async def gone(self, name: str) -> Gone:
        """Wait until nothing of the node's tree lives any more, by whatever cause."""

    def alive(self) -> list[Node]:
        """Nodes whose tree lives now, in the order they were started."""

    async def lost(self) -> str:
        """Wait until what keeps the nodes is gone, so that nothing can be done to them; what."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """From whom some nodes are cut off: workers of other zones, everybody else, or the coordinator.

    ``one_way``: what they send still arrives, what is sent to them does not.
    """

    off: Side
    one_way: bool = False


class Isolated(Cluster, Protocol):
    """A cluster whose nodes have a network and limits of their own.

    What is done is told by when (monotonic seconds) it was seen to be so, by node; nodes that are
    gone are left out.
    """

    async def cut(self, names: Sequence[str], cut: Cut) -> tuple[int, dict[str, float]]:
        """Cut nodes off, those included that come later; a number, and who was seen cut off.

        Raises:
            OSError: it cannot be done; what was begun is undone.
        """

    async def mend(self, number: int) -> None:
        """Undo a cut, verified.

        Raises:
            OSError: the nodes that live do not reach each other.
        """

    async def exhaust(self, name: str) -> float | None:
        """Use up the node's memory until the kernel kills for it; then the rest of the node ends.

        Returns when it was seen gone, None when it was gone before the kernel had killed.
        """

    async def throttle(self, names: Sequence[str], *, cpus: float) -> None:
        """Leave the nodes so many processors."""

    async def throttled(self, names: Sequence[str]) -> dict[str, float]:
        """Who was seen to want more since :meth:`throttle`, and was held back."""

    async def unthrottle(self, names: Sequence[str]) -> None:
        """Give the nodes back what they had."""

    async def hush(self, names: Sequence[str]) -> dict[str, float]:
        """Let nobody answer the nodes who ask for names; who was seen to get no answer."""

    async def unhush(self, names: Sequence[str]) -> None:
        """Names are answered again, verified."""
