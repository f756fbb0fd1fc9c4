"""The machines of an attack: what they are called, where they stand, and what they share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from chaosspot.toml import Value

__all__ = [
    "COORDINATOR",
    "Cloud",
    "ClusterSpec",
    "Count",
    "Group",
    "Name",
    "Node",
    "Pool",
    "Role",
    "StoreKind",
]

Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Cloud = Literal["aws", "gcp", "azure"]
StoreKind = Literal["directory", "s3"]
Pool = Literal["spot", "reserved"]
Role = Literal["worker", "coordinator"]


class Node(Value, frozen=True, kw_only=True):
    """A machine that can be taken away."""

    name: str
    zone: str
    family: str
    pool: Pool
    role: Role
    flash_bytes: int | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None


class Group(Value, frozen=True, kw_only=True):
    """``count`` nodes of one kind; their zones go round-robin.

    ``flash_bytes`` limits each node's flash; without it a flash is as large as the disk.
    ``memory_bytes``, ``cpus`` and ``pids`` (processes and threads) limit nodes that are containers.
    """

    count: Count
    zones: Annotated[tuple[Name, ...], Meta(min_length=1)] = ("a",)
    family: Name = "p4d.24xlarge"
    pool: Pool = "spot"
    flash_bytes: Annotated[int, Meta(ge=1 << 16)] | None = None
    memory_bytes: Annotated[int, Meta(ge=1 << 24)] | None = None
    cpus: Annotated[float, Meta(ge=0.01)] | None = None
    pids: Annotated[int, Meta(ge=16)] | None = None


class ClusterSpec(Value, frozen=True, kw_only=True):
    """The worker nodes of one attack, whose cloud's metadata service they ask, and their store.

    The coordinator comes with the trainer.
    """

    cloud: Cloud = "aws"
    store: StoreKind = "directory"
    group: Annotated[tuple[Group, ...], Meta(min_length=1)] = (Group(count=4, zones=("a", "b")),)

    def nodes(self) -> tuple[Node, ...]:
        """``node-0``, ``node-1``, ... in the order of the groups."""
        kinds = [
            (group.zones[index % len(group.zones)], group)
            for group in self.group
            for index in range(group.count)
        ]
        return tuple(
            Node(
                name=f"node-{number}",
                zone=zone,
                family=group.family,
                pool=group.pool,
                role="worker",
                flash_bytes=group.flash_bytes,
                memory_bytes=group.memory_bytes,
                cpus=group.cpus,
                pids=group.pids,
            )
            for number, (zone, group) in enumerate(kinds)
        )

    def resized(self, count: int) -> ClusterSpec:
        """The same groups with ``count`` nodes in all, shared out in proportion.

        Raises:
            ValueError: fewer nodes than groups.
        """
        if count < len(self.group):
            raise ValueError(f"nodes = {count}: this cluster has {len(self.group)} groups")
        total = sum(group.count for group in self.group)
        counts = [max(1, group.count * count // total) for group in self.group]
        for index in range(abs(count - sum(counts))):
            largest = max(range(len(counts)), key=lambda i: counts[i])
            grow = sum(counts) < count
            counts[index % len(counts) if grow else largest] += 1 if grow else -1
        groups = zip(self.group, counts, strict=True)
        return replace(self, group=tuple(replace(group, count=n) for group, n in groups))


COORDINATOR = Node(
    name="coordinator", zone="reserved", family="reserved", pool="reserved", role="coordinator"
)
