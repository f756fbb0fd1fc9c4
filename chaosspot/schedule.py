"""What goes wrong, when and where: the one schedule type, and its TOML form.

A hand-written file, a Hypothesis draw, a trace and a replay are all a :class:`Schedule`; reading
and writing are exact inverses. Everything here is a frozen value, and decisions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from chaosspot import content, toml
from chaosspot.fault import (
    DiskFull,
    DnsGone,
    Fault,
    FaultKind,
    Grow,
    Hold,
    Kill,
    KillChild,
    Link,
    Misbehave,
    Network,
    Notice,
    ObjectStore,
    OutOfMemory,
    Partition,
    Pause,
    Resolved,
    Seconds,
    Side,
    Slow,
    SlowFlash,
    Target,
    Terminate,
    ThrottleCpu,
    Toxic,
    Trigger,
)
from chaosspot.misbehaviour import FarFuture, Skew, TokenKill
from chaosspot.nodes import COORDINATOR, Cloud, ClusterSpec, Group, Node, StoreKind
from chaosspot.toml import FileError, Value
from chaosspot.victims import LEAST_P, BetaBinomial, CommonShock, Correlation, p_at_least, victims
from chaosspot.words import CONTROL

__all__ = [
    "COORDINATOR",
    "BetaBinomial",
    "Cloud",
    "ClusterSpec",
    "CommonShock",
    "DiskFull",
    "DnsGone",
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
    "OutOfMemory",
    "Partition",
    "Pause",
    "Resolved",
    "Schedule",
    "Side",
    "Slow",
    "SlowFlash",
    "StoreKind",
    "Target",
    "Terminate",
    "ThrottleCpu",
    "Toxic",
    "Trigger",
    "choose",
    "delay",
    "draw",
    "load",
]


Factor = Annotated[float, Meta(ge=1.0)]


class Expectation(Value, frozen=True, kw_only=True):
    """What must hold; what is left out follows from the trainer's promises.

    ``stays``: no notice is a reason to leave, and no node that gets one may be gone before it is
    withdrawn or over. ``straggler_factor``, ``stuck_s``, ``unheard_s``: at most, see
    :mod:`chaosspot.oracles.gray`.
    """

    recovery_s: Seconds | None = None
    catch_up_s: Seconds | None = None
    rework_steps: Annotated[int, Meta(ge=0)] | None = None
    stays: bool | None = None
    straggler_factor: Factor | None = None
    stuck_s: Seconds | None = None
    unheard_s: Seconds | None = None


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
            if isinstance(fault, SlowFlash) and any(
                g.flash_bytes is not None for g in self.cluster.group
            ):
                raise FileError(
                    f"fault[{index}]: slow-flash excludes cluster.group.flash_bytes: a flash of "
                    "limited size is in memory"
                )
            through = isinstance(fault, Network) and fault.link == "store"
            if (through or isinstance(fault, ObjectStore)) and self.cluster.store != "s3":
                raise FileError(f"fault[{index}]: {fault.kind} needs cluster.store = 's3'")
            of_workers = isinstance(fault, Network | Misbehave | Partition)
            if of_workers and target and target.role != "worker":
                role = f"fault[{index}].target.role = {target.role!r}"
                raise FileError(f"{role}: a {fault.kind} fault is of workers")
            if isinstance(fault, Misbehave):
                _check_cloud(fault, index, self.cluster.cloud)
            if target is None:
                if fault.TAKES_NODES and not any(map(fault.may_hit, nodes)):
                    raise FileError(
                        f"fault[{index}] has no target, and all nodes are reserved: "
                        "say whom it takes, with target.pool = 'reserved' or by name"
                    )
                continue
            unknown = set(target.nodes or ()) - {node.name for node in nodes}
            later = {name for name in unknown if name.startswith("node-")}
            if unknown - later or (later and not self._replaces()):
                raise FileError(f"fault[{index}].target.nodes: no node {sorted(unknown)[0]!r}")
            matching = [node for node in nodes if fault.may_hit(node)]
            if not matching and not later:
                raise FileError(
                    f"fault[{index}].target = {toml.dumps(target).strip()!r} matches no node of: "
                    + ", ".join(f"{n.name} (zone {n.zone}, {n.family}, {n.pool})" for n in nodes)
                    + _reserved_hint(fault, nodes)
                )
            most = len(matching) + sum(f.count for f in self.fault if isinstance(f, Grow))
            if target.count is not None and target.count > most and not later:
                raise FileError(
                    f"fault[{index}].target.count = {target.count}: only {len(matching)} match"
                    + _reserved_hint(fault, nodes)
                )

            if target.correlation is not None:
                _check_draw(target.correlation, index, matching)

    def _replaces(self) -> bool:
        return any(f.replace_after_s is not None or isinstance(f, Grow) for f in self.fault)


def _check_draw(model: Correlation, index: int, nodes: list[Node]) -> None:
    """Refuse a draw that would have to be repeated for ever."""
    if model.at_least and (p := p_at_least(model, nodes)) < LEAST_P:
        raise FileError(
            f"fault[{index}].target.correlation.at_least = {model.at_least}: of {len(nodes)} nodes "
            f"so many go with a probability of {p:.2g}, which is below {LEAST_P}"
        )


def _reserved_hint(fault: Fault, nodes: Iterable[Node]) -> str:
    """What lets a fault take more, where it would by its target alone."""
    assert fault.target is not None, "only targets are refused"
    more = [n.name for n in nodes if fault.target.matches(n) and not fault.may_hit(n)]
    return f"; pool = 'reserved' or 'any' would let it take {', '.join(more)}" if more else ""


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
    fault: Fault,
    index: int,
    seed: int,
    live: Iterable[Node],
    puller: str = "",
    going: Collection[str] = (),
) -> list[str]:
    """The names of the nodes that fault number ``index`` hits among those that live now.

    Live nodes are ranked by a hash of (seed, fault, name), so that one seed takes the same nodes
    in every run; those that are ``going``, since another fault takes them already, come last.
    ``puller`` is the node whose event or point pulled the trigger; if it is reserved, a fault
    that takes nodes takes another.
    """
    nodes = {node.name: node for node in live}
    if fault.resolved is not None:
        return [name for name in fault.resolved.nodes if name in nodes]
    everyone = isinstance(fault, Network)
    hittable = [name for name, node in nodes.items() if fault.may_hit(node)]
    if fault.target is None and puller in hittable and not everyone:
        return [puller]
    target = fault.target or Target(count=None if everyone else 1)
    ranked = sorted(hittable, key=lambda name: (name in going, draw(seed, index, name), name))
    if target.correlation is not None:
        in_order = [nodes[name] for name in ranked]
        return victims(target.correlation, in_order, lambda *at: draw(seed, index, "drawn", *at))
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
