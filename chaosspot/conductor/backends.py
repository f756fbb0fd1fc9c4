"""Where nodes may live: by name, and what each can do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chaosspot.cluster import Cluster, processes
from chaosspot.schedule import Schedule
from chaosspot.undo import Lease

__all__ = ["BACKENDS", "Backend"]

BACKENDS = ("processes", "containers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """One of :data:`BACKENDS`; ``image`` is of containers.

    Raises:
        ValueError: there is no such backend, or it has no images.
    """

    name: str = "processes"
    image: str | None = None

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise ValueError(f"cluster = {self.name!r}; valid: {', '.join(BACKENDS)}")
        if self.image is not None and self.name != "containers":
            raise ValueError(f"image = {self.image!r} has no meaning with cluster = {self.name!r}")

    @property
    def isolates(self) -> bool:
        """Whether nodes have a network and limits of their own."""
        return self.name == "containers"

    def unsupported(self, schedule: Schedule, runs: Path) -> str | None:
        """What this machine cannot make of a schedule, and why; None if nothing.

        Args:
            runs: where the run directory would be.
        """
        if self.name == "processes":
            return processes.unsupported(schedule, runs)
        from chaosspot.cluster import able

        return able.unsupported(schedule, self.image)

    def cluster(
        self, *, run: Path, lease: Lease, shares: Iterable[Path], reads: Iterable[Path]
    ) -> Cluster:
        """Nodes of one run, which see ``shares`` and read ``reads`` beside what all need."""
        if self.name == "processes":
            return processes.ProcessCluster(run=run, lease=lease)
        from chaosspot.cluster.containers import ContainerCluster

        return ContainerCluster(run=run, lease=lease, image=self.image, shares=shares, reads=reads)
