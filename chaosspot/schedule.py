"""What goes wrong, when and where: the one schedule type, and its TOML form.

A hand-written file, a Hypothesis draw, a trace and a replay are all a :class:`Schedule`; reading
and writing are exact inverses. Everything here is a frozen value, and decisions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from chaosspot import content, toml
from chaosspot.fault import (
    DiskFull,
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
    Pause,
    Resolved,
    Seconds,
    Target,
    Terminate,
    Toxic,
    Trigger,
)
from chaosspot.misbehaviour import FarFuture, Skew, TokenKill
from chaosspot.nodes import COORDINATOR, Cloud, ClusterSpec, Group, Node, StoreKind
from chaosspot.toml import FileError, Value
from chaosspot.words import CONTROL

__all__ = [
    "COORDINATOR",
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
            if isinstance(fault, Network | Misbehave) and target and target.role != "worker":
                role = f"fault[{index}].target.role = {target.role!r}"
                raise FileError(f"{role}: a {fault.kind} fault is of workers")
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
