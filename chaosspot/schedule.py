"""What goes wrong, when and where: the one schedule type, and its TOML form.

A hand-written file, a Hypothesis draw, a trace and a replay are all a :class:`Schedule`; reading
and writing are exact inverses. Everything here is a frozen value, and decisions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace

from chaosspot import content, toml
from chaosspot.misbehaviour import FarFuture, MisbehaviourKind, Skew, TokenKill
from chaosspot.store_misbehaviour import StoreMisbehaviourKind
from chaosspot.toml import FileError, Value
from chaosspot.words import CONTROL

__all__ = [
    "Cloud",
    "ClusterSpec",
    "DiskFull",
    "Expectation",
    "Fault",
    "FaultKind",
    "FileError",
    "Group",
    "Grow",
    "Hold",
    "Kill",
    "KillChild",
    "Link",
    "Misbehave",
    "Network",
    "Node",
    "Notice",
    "ObjectStore",
    "Pause",
    "Resolved",
    "Schedule",
    "StoreKind",
    "Target",
    "Terminate",
    "Toxic",
    "Trigger",
    "choose",
    "delay",
    "draw",
    "load",
]

Seconds = Annotated[float, Meta(ge=0.0)]
Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Cloud = Literal["aws", "gcp", "azure"]
Link = Literal["store", "metadata", "coordinator"]
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


class Group(Value, frozen=True, kw_only=True):
    """``count`` nodes of one kind; their zones go round-robin.

    ``flash_bytes`` limits each node's flash; without it a flash is as large as the disk.
    """

    count: Count
    zones: Annotated[tuple[Name, ...], Meta(min_length=1)] = ("a",)
    family: Name = "p4d.24xlarge"
    pool: Pool = "spot"
    flash_bytes: Annotated[int, Meta(ge=1 << 16)] | None = None


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


class Trigger(Value, frozen=True, kw_only=True):
    """When a fault acts: exactly one of ``at_s``, ``at_step``, ``event`` and ``point``.

    ``at_s`` counts from the moment every worker has committed once. ``event`` is a record's name,
    with the stage of a snapshot after a dot (``snapshot.local``). ``point`` is a named place in
    the trainer that holds the process until the fault has acted. ``nth`` counts events or hits.
    ``delay_s`` is added, and so is a share of ``jitter_s`` that the seed decides.
    """

    at_s: Seconds | None = None
    at_step: Count | None = None
    event: Name | None = None
    point: Name | None = None
    nth: Count = 1
    delay_s: Seconds = 0.0
    jitter_s: Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [k for k in ("at_s", "at_step", "event", "point") if getattr(self, k) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"exactly one of at_s, at_step, event, point is needed, not {got}")
        if self.nth != 1 and given[0] in ("at_s", "at_step"):
            raise ValueError(f"nth = {self.nth} has no meaning with {given[0]}")
        if self.point is not None and (self.delay_s or self.jitter_s):
            raise ValueError("delay_s and jitter_s have no meaning with point")


class Target(Value, frozen=True, kw_only=True):
    """Which live nodes a fault hits: all that match, or ``count`` or ``fraction`` of them."""

    nodes: tuple[Name, ...] | None = None
    count: Count | None = None
    fraction: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    zone: Name | None = None
    family: Name | None = None
    pool: Pool | None = None
    role: Role = "worker"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count is not None and self.fraction is not None:
            raise ValueError(f"count = {self.count} and fraction = {self.fraction} exclude another")
        if self.nodes is not None and not self.nodes:
            raise ValueError("nodes = [] names no node")

    def matches(self, node: Node) -> bool:
        """Whether the node is one that this target may take."""
        wanted = ("zone", "family", "pool", "role")
        return (self.nodes is None or node.name in self.nodes) and all(
            getattr(self, key) in (None, getattr(node, key)) for key in wanted
        )


class Resolved(Value, frozen=True, kw_only=True):
    """What a run made of a fault.

    ``nodes`` and ``delay_s`` (the trigger's delay with its share of the jitter) follow from the
    seed; ``injected_s`` (as in ``at_s``) and ``step`` are when it happened to act.
    """

    nodes: tuple[str, ...]
    delay_s: float
    injected_s: float
    step: int


class Fault(Value, frozen=True, kw_only=True, tag_field="kind"):
    """One thing that goes wrong. Without a target: the node that pulled the trigger, else one.

    ``replace_after_s``: a new node (new name, empty flash) comes so long after each is gone.
    The node is there (and billed) at once; its trainer starts ``start_delay_s`` later, as on a
    machine that has to fetch its image first. ``resolved`` is written by a run; a replay takes the
    nodes and the delay from it.
    """

    kind: ClassVar[str]
    on: Trigger
    target: Target | None = None
    replace_after_s: Seconds | None = None
    start_delay_s: Seconds = 0.0
    resolved: Resolved | None = None


class Kill(Fault, frozen=True, kw_only=True, tag="kill"):
    """SIGKILL to the whole process tree; the node's flash goes with it.

    ``keep_flash``: the machine only reboots. It keeps its flash, and what comes after
    ``replace_after_s`` is the same node again.
    """

    kind = "kill"
    keep_flash: bool = False


class Terminate(Fault, frozen=True, kw_only=True, tag="terminate"):
    """SIGTERM, and SIGKILL to what is left after ``grace_s``.

    ``scope``: to every process of the node's tree, or to the main process of each rank alone.
    """

    kind = "terminate"
    grace_s: Seconds = 30.0
    scope: Literal["tree", "main"] = "tree"


class KillChild(Fault, frozen=True, kw_only=True, tag="kill-child"):
    """SIGKILL to one process that a rank started, as the kernel does to a loader out of memory."""

    kind = "kill-child"


class Pause(Fault, frozen=True, kw_only=True, tag="pause"):
    """SIGSTOP to the whole process tree, SIGCONT after ``duration_s``."""

    kind = "pause"
    duration_s: Seconds = 20.0


class Hold(Fault, frozen=True, kw_only=True, tag="hold"):
    """The thread that reaches a point stays there for ``duration_s``; the others go on.

    A process that hangs and still sends its heartbeats.
    """

    kind = "hold"
    duration_s: Seconds = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on.point is None:
            raise ValueError("a hold needs a point: on = { point = ... }")
        if self.target is not None:
            raise ValueError("a hold has no target: it holds whoever reaches its point")


class DiskFull(Fault, frozen=True, kw_only=True, tag="disk-full"):
    """No space is left on the node's flash for ``duration_s``.

    The cluster's groups must say how large a flash is (``flash_bytes``).
    """

    kind = "disk-full"
    duration_s: Seconds = 10.0


class Grow(Fault, frozen=True, kw_only=True, tag="grow"):
    """``count`` more nodes, like those of the cluster's first group."""

    kind = "grow"
    count: Count = 1


class Notice(Fault, frozen=True, kw_only=True, tag="notice"):
    """The cloud's interruption notice, and the reclaim at its deadline.

    At the deadline, or ``kill_after_s`` after the notice if that is given, the node gets SIGTERM
    and ``shutdown_s`` later SIGKILL. With ``withdraw_after_s`` the notice is taken back, and the
    node stays. With ``spares`` it is of something that takes no node (AWS advises to rebalance,
    Google Cloud migrates, Azure freezes), and it is over at the deadline.
    """

    kind = "notice"
    lead_s: Seconds = 120.0
    kill_after_s: Seconds | None = None
    withdraw_after_s: Seconds | None = None
    shutdown_s: Seconds = 2.0
    spares: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spares and self.kill_after_s is not None:
            raise ValueError(f"kill_after_s = {self.kill_after_s} has no meaning with spares")
        if self.kill_after_s is not None and self.kill_after_s > self.lead_s:
            raise ValueError(f"kill_after_s = {self.kill_after_s} is after lead_s = {self.lead_s}")
        if self.withdraw_after_s is not None:
            if self.kill_after_s is not None:
                raise ValueError(
                    f"kill_after_s = {self.kill_after_s} and "
                    f"withdraw_after_s = {self.withdraw_after_s} exclude another"
                )
            if self.withdraw_after_s >= self.lead_s:
                raise ValueError(
                    f"withdraw_after_s = {self.withdraw_after_s} is not before "
                    f"lead_s = {self.lead_s}"
                )


class Misbehave(Fault, frozen=True, kw_only=True, tag="misbehave"):
    """The metadata service of the nodes misbehaves for ``duration_s``, as ``how`` says.

    Alone it should cost nothing; with a notice at the same time it hides or garbles that.
    """

    kind = "misbehave"
    how: MisbehaviourKind
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.how.nodes != "*" or self.how.lasts_s is not None:
            raise ValueError("how.nodes and how.lasts_s are said by target and duration_s")


class ObjectStore(Fault, frozen=True, kw_only=True, tag="object-store"):
    """The object store misbehaves for ``duration_s``, as ``how`` says; towards whom, it says too.

    The cluster's ``store`` must be an object store.
    """

    kind = "object-store"
    how: StoreMisbehaviourKind
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target is not None:
            raise ValueError("an object-store fault has no target: how.nodes says towards whom")
        if self.how.lasts_s is not None:
            raise ValueError("how.lasts_s is said by duration_s")


class Toxic(Value, frozen=True, kw_only=True):
    """Toxiproxy's: what happens to what flows one way of a link.

    ``stream``: "upstream" is from the node. ``toxicity``: the share of connections, which the
    run's seed decides. ``attributes`` are those of the type: milliseconds, bytes, KB/s.
    """

    type: Name
    stream: Literal["upstream", "downstream"] = "downstream"
    toxicity: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    attributes: dict[str, int] = {}


class Network(Fault, frozen=True, kw_only=True, tag="network"):
    """A link of the nodes is bad for ``duration_s``: what flows over it meets ``toxics``, in order.

    Without a target it is the link of all nodes, and of those that come meanwhile. ``cuts``:
    nothing can be done over it, so that recovery is owed only when it is whole again.
    """

    kind = "network"
    link: Link
    toxic: Annotated[tuple[Toxic, ...], Meta(min_length=1)]
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0
    cuts: bool = False


FaultKind = (
    Kill
    | Terminate
    | Notice
    | KillChild
    | Pause
    | Hold
    | DiskFull
    | Grow
    | Misbehave
    | ObjectStore
    | Network
)


class Expectation(Value, frozen=True, kw_only=True):
    """What must hold; what is left out follows from the trainer's promises.

    ``stays``: no notice is a reason to leave, and no node that gets one may be gone before it is
    withdrawn or over.
    """

    recovery_s: Seconds | None = None
    catch_up_s: Seconds | None = None
    rework_steps: Annotated[int, Meta(ge=0)] | None = None
    stays: bool | None = None


class Schedule(Value, frozen=True, kw_only=True):
    """An ordered list of faults with the cluster they need and what is expected."""

    title: str = ""
    source: str = ""
    imitates: str = ""
    does_not_prove: str = ""
    seed: Annotated[int, Meta(ge=0)] | None = None
    cluster: ClusterSpec = ClusterSpec()
    fault: tuple[FaultKind, ...] = ()
    expect: Expectation = Expectation()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("title", "source"):  # the others may have several lines
            if CONTROL.search(text := getattr(self, name)):
                raise ValueError(f"{name} has a control character: {text!r}")

    def check(self) -> None:
        """Refuse what can be refused before anything runs.

        Raises:
            FileError: a target that matches no node of the cluster, or a fault that needs what
                the cluster does not have.
        """
        nodes = [*self.cluster.nodes(), COORDINATOR]
        for index, fault in enumerate(self.fault):
            target = fault.target
            if isinstance(fault, DiskFull) and any(
                g.flash_bytes is None for g in self.cluster.group
            ):
                raise FileError(f"fault[{index}]: disk-full needs cluster.group.flash_bytes")
            through = isinstance(fault, Network) and fault.link == "store"
            if (through or isinstance(fault, ObjectStore)) and self.cluster.store != "s3":
                raise FileError(f"fault[{index}]: {fault.kind} needs cluster.store = 's3'")
            if isinstance(fault, Misbehave):
                _check_cloud(fault, index, self.cluster.cloud)
            if target is None:
                continue
            unknown = set(target.nodes or ()) - {node.name for node in nodes}
            later = {name for name in unknown if name.startswith("node-")}
            if unknown - later or (later and not self._replaces()):
                raise FileError(f"fault[{index}].target.nodes: no node {sorted(unknown)[0]!r}")
            matching = [node for node in nodes if target.matches(node)]
            if not matching and not later:
                raise FileError(
                    f"fault[{index}].target = {toml.dumps(target).strip()!r} matches no node of: "
                    + ", ".join(f"{n.name} (zone {n.zone}, {n.family}, {n.pool})" for n in nodes)
                )
            if target.count is not None and target.count > len(matching) and not later:
                raise FileError(
                    f"fault[{index}].target.count = {target.count}: only {len(matching)} match"
                )

    def _replaces(self) -> bool:
        return any(f.replace_after_s is not None or isinstance(f, Grow) for f in self.fault)


_HAVE_TOKENS: tuple[Cloud, ...] = ("aws",)
_TELL_TIMES: tuple[Cloud, ...] = ("aws", "azure")


def _check_cloud(fault: Misbehave, index: int, cloud: Cloud) -> None:
    """Refuse what the cloud has no occasion for."""
    if isinstance(fault.how, TokenKill):
        what, where = "tokens", _HAVE_TOKENS
    elif isinstance(fault.how, FarFuture | Skew):
        what, where = "notices with a time", _TELL_TIMES
    else:
        return
    if cloud not in where:
        raise FileError(
            f"fault[{index}].how: it needs {what}, which cloud = {cloud!r} does not have; "
            f"{' and '.join(where)} do"
        )


COORDINATOR = Node(
    name="coordinator", zone="reserved", family="reserved", pool="reserved", role="coordinator"
)


def load(name: str) -> tuple[str, Schedule]:
    """Read a schedule by path or by its name in ``faults/``; returns its name and itself.

    Raises:
        ContentError: no such file.
        FileError: the file does not hold a schedule, or its name has a control character.
    """
    path = content.find(name, "faults")
    if CONTROL.search(path.stem):
        raise FileError(f"{str(path)!r}: its name has a control character")
    schedule = toml.read(path, Schedule)
    schedule.check()
    return path.stem, schedule


def draw(seed: int, *component: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    text = "\0".join(map(str, (seed, *component)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest()) / 2**56


def choose(
    fault: Fault, index: int, seed: int, live: Iterable[Node], puller: str = ""
) -> list[str]:
    """The names of the nodes that fault number ``index`` hits among those that live now.

    Live nodes are ranked by a hash of (seed, fault, name), so that one seed takes the same nodes
    in every run. ``puller`` is the node whose event or point pulled the trigger.
    """
    nodes = {node.name: node for node in live}
    if fault.resolved is not None:
        return [name for name in fault.resolved.nodes if name in nodes]
    everyone = isinstance(fault, Network)
    if fault.target is None and puller in nodes and not everyone:
        return [puller]
    target = fault.target or Target(count=None if everyone else 1)
    matching = [name for name, node in nodes.items() if target.matches(node)]
    ranked = sorted(matching, key=lambda name: (draw(seed, index, name), name))
    if target.fraction is not None:
        return ranked[: max(1, round(target.fraction * len(ranked)))]
    return ranked[: target.count]


def delay(fault: Fault, index: int, seed: int) -> float:
    """Seconds between a fault's trigger and its acting, with its share of the jitter."""
    if fault.resolved is not None:
        return fault.resolved.delay_s
    return fault.on.delay_s + fault.on.jitter_s * draw(seed, index, "jitter")


def read(path: Path) -> Schedule:
    """Read the ``schedule.toml`` of a run."""
    return toml.read(path, Schedule)
