"""One thing that goes wrong: its kinds, when it acts and whom it hits; frozen values."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from chaosspot.misbehaviour import MisbehaviourKind
from chaosspot.nodes import Count, Name, Node, Role
from chaosspot.store_misbehaviour import StoreMisbehaviourKind
from chaosspot.toml import Value
from chaosspot.victims import Correlation

__all__ = [
    "DiskFull",
    "DnsGone",
    "Fault",
    "FaultKind",
    "Grow",
    "Hold",
    "Kill",
    "KillChild",
    "Link",
    "Misbehave",
    "Network",
    "Notice",
    "ObjectStore",
    "OutOfMemory",
    "Partition",
    "Pause",
    "Resolved",
    "Seconds",
    "Side",
    "Slow",
    "SlowFlash",
    "Target",
    "Terminate",
    "ThrottleCpu",
    "Toxic",
    "Trigger",
]

Seconds = Annotated[float, Meta(ge=0.0)]
Link = Literal["store", "metadata", "coordinator"]
TargetPool = Literal["spot", "reserved", "any"]
Side = Literal["rest", "zones", "coordinator"]


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
    """Which live nodes a fault hits: all that match, or ``count`` or ``fraction`` of them.

    ``pool``: "any" is either. Without it nodes of any pool match, except where nodes are taken
    (see :meth:`Fault.may_hit`). ``correlation``: how many go, and which, is drawn.
    """

    nodes: tuple[Name, ...] | None = None
    count: Count | None = None
    fraction: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    zone: Name | None = None
    family: Name | None = None
    pool: TargetPool | None = None
    role: Role = "worker"
    correlation: Correlation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        amounts = {"count": self.count, "fraction": self.fraction}
        said = [f"{name} = {value}" for name, value in amounts.items() if value is not None]
        if len(said) == 2:
            raise ValueError(f"{said[0]} and {said[1]} exclude another")
        if said and self.correlation is not None:
            raise ValueError(f"{said[0]} and correlation exclude another: how many go is drawn")
        if self.nodes is not None and not self.nodes:
            raise ValueError("nodes = [] names no node")

    def matches(self, node: Node) -> bool:
        """Whether the node is one that this target may take."""
        wanted = ("zone", "family", "role")
        return (
            (self.nodes is None or node.name in self.nodes)
            and self.pool in (None, "any", node.pool)
            and all(getattr(self, key) in (None, getattr(node, key)) for key in wanted)
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

    Who takes nodes takes them from the spot pool: reserved ones only where the target says so.
    ``replace_after_s``: a new node (new name, empty flash) comes so long after each is gone.
    The node is there (and billed) at once; its trainer starts ``start_delay_s`` later, as on a
    machine that has to fetch its image first. ``resolved`` is written by a run; a replay takes the
    nodes and the delay from it.
    """

    kind: ClassVar[str]
    TAKES_NODES: ClassVar[bool] = False
    NEEDS_ISOLATION: ClassVar[bool] = False  # a network and limits that a node has for itself
    on: Trigger
    target: Target | None = None
    replace_after_s: Seconds | None = None
    start_delay_s: Seconds = 0.0
    resolved: Resolved | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.TAKES_NODES and (self.replace_after_s is not None or self.start_delay_s):
            raise ValueError(
                f"replace_after_s and start_delay_s have no meaning with kind = {self.kind!r}, "
                "which takes no node"
            )

    @property
    def takes(self) -> bool:
        """Whether its nodes will be gone."""
        return self.TAKES_NODES

    @property
    def drawn(self) -> bool:
        """Whether a draw says how many nodes it hits; it may be none."""
        return self.target is not None and self.target.correlation is not None

    def may_hit(self, node: Node) -> bool:
        """Whether the node is one that this fault may be made to.

        A cloud does not reclaim what is reserved: a fault that takes nodes takes such a one only
        by its pool (``pool = "reserved"`` or ``"any"``), its name or its role.
        """
        target = self.target or Target()
        said = target.pool or target.nodes or target.role == "coordinator"
        protected = self.TAKES_NODES and not said and node.pool == "reserved"
        return target.matches(node) and not protected


class Kill(Fault, frozen=True, kw_only=True, tag="kill"):
    """SIGKILL to the whole process tree; the node's flash goes with it.

    ``keep_flash``: the machine only reboots. It keeps its flash, and what comes after
    ``replace_after_s`` is the same node again.
    """

    kind = "kill"
    TAKES_NODES = True
    keep_flash: bool = False


class Terminate(Fault, frozen=True, kw_only=True, tag="terminate"):
    """SIGTERM, and SIGKILL to what is left after ``grace_s``.

    ``scope``: to every process of the node's tree, or to the main process of each rank alone.
    """

    kind = "terminate"
    TAKES_NODES = True
    grace_s: Seconds = 30.0
    scope: Literal["tree", "main"] = "tree"


class KillChild(Fault, frozen=True, kw_only=True, tag="kill-child"):
    """SIGKILL to one process that a rank started, as the kernel does to a loader out of memory."""

    kind = "kill-child"


class Pause(Fault, frozen=True, kw_only=True, tag="pause"):
    """SIGSTOP to the whole process tree, SIGCONT after ``duration_s``."""

    kind = "pause"
    duration_s: Seconds = 20.0


class Slow(Fault, frozen=True, kw_only=True, tag="slow"):
    """The node gets 1 / ``factor`` of the time for ``duration_s``: SIGSTOP and SIGCONT by turns."""

    kind = "slow"
    factor: Annotated[float, Meta(ge=1.5, le=100.0)] = 4.0
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0


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


class SlowFlash(Fault, frozen=True, kw_only=True, tag="slow-flash"):
    """The node writes no faster than that to its flash for ``duration_s``.

    The kernel delays what is written past the page cache, or synced, by any process of the node.
    Flashes of limited size (``flash_bytes``) are in memory and cannot be slow.
    """

    kind = "slow-flash"
    write_bytes_per_s: Annotated[int, Meta(ge=4096)]
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0


class Grow(Fault, frozen=True, kw_only=True, tag="grow"):
    """``count`` more nodes, like those of the cluster's first group, in its emptiest zones."""

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
    TAKES_NODES = True
    lead_s: Seconds = 120.0
    kill_after_s: Seconds | None = None
    withdraw_after_s: Seconds | None = None
    shutdown_s: Seconds = 2.0
    spares: bool = False

    @property
    def takes(self) -> bool:
        return not self.spares and self.withdraw_after_s is None

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


class Partition(Fault, frozen=True, kw_only=True, tag="partition"):
    """The nodes cannot reach others for ``duration_s``, over any network, and the reverse.

    ``off``: from whom they are cut off: from the ``rest`` of the nodes and the coordinator, from
    the workers of other ``zones``, or from the ``coordinator`` alone. ``one_way``: what they send
    still arrives, what is sent to them does not. They still reach the cloud and the store.
    """

    kind = "partition"
    NEEDS_ISOLATION = True
    off: Side = "rest"
    one_way: bool = False
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0


class OutOfMemory(Fault, frozen=True, kw_only=True, tag="out-of-memory"):
    """The kernel kills in the nodes for want of memory, and all of each node goes with that."""

    kind = "out-of-memory"
    TAKES_NODES = True
    NEEDS_ISOLATION = True


class ThrottleCpu(Fault, frozen=True, kw_only=True, tag="throttle-cpu"):
    """The nodes have no more than ``cpus`` processors for ``duration_s``."""

    kind = "throttle-cpu"
    NEEDS_ISOLATION = True
    cpus: Annotated[float, Meta(ge=0.01)] = 0.2
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0


class DnsGone(Fault, frozen=True, kw_only=True, tag="dns-gone"):
    """Nobody answers the nodes when they ask for a name, for ``duration_s``."""

    kind = "dns-gone"
    NEEDS_ISOLATION = True
    duration_s: Annotated[float, Meta(gt=0.0)] = 20.0


FaultKind = (
    Kill
    | Terminate
    | Notice
    | KillChild
    | Pause
    | Slow
    | Hold
    | DiskFull
    | SlowFlash
    | Grow
    | Misbehave
    | ObjectStore
    | Network
    | Partition
    | OutOfMemory
    | ThrottleCpu
    | DnsGone
)
