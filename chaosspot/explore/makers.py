"""Strategies for single faults: how each kind is drawn, from mild to bad."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from chaosspot import schedule as s
from chaosspot.explore import misbehaviours
from chaosspot.explore.ground import Ground
from chaosspot.explore.places import of_cluster
from chaosspot.explore.times import at_points, seconds, triggers
from chaosspot.nodes import ClusterSpec
from chaosspot.schedule import FaultKind, Target, Trigger

__all__ = ["bound", "makeable"]

_LONGEST_S = 5.0  # of what ends by itself
_LEAD_S = 4.0  # the shortest notice


@st.composite
def bound(
    draw: DrawFn,
    ground: Ground,
    cluster: ClusterSpec,
    *,
    on: SearchStrategy[Trigger] | None = None,
) -> FaultKind:
    """Faults of one cluster, on this ground."""
    possible = makeable(ground, cluster)
    if not possible:
        raise ValueError(f"kinds = {', '.join(ground.kinds)}: none can be made to this cluster")
    when = _times(ground.events, ground.points) if on is None else on
    fault = _MAKERS[draw(st.sampled_from(possible))](_Drawing(draw, ground, cluster, when))
    assume(ground.allows(fault))
    return fault


def makeable(ground: Ground, cluster: ClusterSpec) -> tuple[str, ...]:
    """The kinds for which cluster and ground have what they need."""
    needs = {
        "disk-full": all(group.flash_bytes is not None for group in cluster.group),
        "slow-flash": all(group.flash_bytes is None for group in cluster.group),
        "object-store": cluster.store == "s3",
        "hold": ground.points,
    }
    return tuple(kind for kind in _MAKERS if kind in ground.kinds and needs.get(kind, True))


@functools.lru_cache
def _times(events: tuple[str, ...], points: tuple[str, ...]) -> SearchStrategy[Trigger]:
    return triggers(events=events, points=points)


class _Drawing(NamedTuple):
    """What the makers of faults draw with, and from."""

    draw: DrawFn
    ground: Ground
    cluster: ClusterSpec
    times: SearchStrategy[Trigger]

    def on(self) -> Trigger:
        return self.draw(self.times)

    def seconds(self, least_s: float, most_s: float) -> float:
        return self.draw(seconds(least_s, most_s))

    def of(self, *choices: Any) -> Any:
        """One of these; the first is the mildest."""
        return self.draw(st.sampled_from(choices))

    def target(self, *, coordinator: bool = False) -> Target | None:
        """None, which is whoever pulled the trigger, or nodes of the cluster."""
        if self.of(True, False):
            return None
        nodes = self.cluster.nodes()
        hit = coordinator and self.ground.coordinator
        return self.draw(of_cluster(nodes, min_count=1, max_count=len(nodes), coordinator=hit))


def _kill(d: _Drawing) -> FaultKind:
    fault = s.Kill(
        on=d.on(), target=d.target(coordinator=True), replace_after_s=d.seconds(0.1, 3.0)
    )
    match d.of("replaced", "late", "reboots", "gone"):
        case "late":
            return replace(fault, start_delay_s=d.seconds(0.1, 2.0))
        case "reboots":
            return replace(fault, keep_flash=True)
        case "gone":
            return replace(fault, replace_after_s=None)
    return fault


def _terminate(d: _Drawing) -> FaultKind:
    return s.Terminate(
        on=d.on(),
        target=d.target(),
        grace_s=d.seconds(3.0, 10.0),
        scope=d.of("tree", "main"),
        replace_after_s=d.of(0.1, 1.0, 3.0, None),
    )


def _notice(d: _Drawing) -> FaultKind:
    fault = s.Notice(
        on=d.on(), target=d.target(), lead_s=d.seconds(_LEAD_S, 10.0), shutdown_s=d.of(0.5, 2.0)
    )
    match d.of("kept", "cut short", "withdrawn", "spares"):
        case "spares":
            return replace(fault, spares=True)
        case "withdrawn":
            return replace(fault, withdraw_after_s=d.seconds(0.5, fault.lead_s - 0.1))
        case "cut short":
            early_s = d.seconds(_LEAD_S if d.ground.fair else 0.0, fault.lead_s)
            return replace(fault, kill_after_s=early_s, replace_after_s=d.of(0.1, 1.0, 3.0))
    return replace(fault, replace_after_s=d.of(0.1, 1.0, 3.0, None))


def _misbehave(d: _Drawing) -> FaultKind:
    return s.Misbehave(
        on=d.on(),
        target=d.target(),
        how=d.draw(misbehaviours.metadata(d.cluster.cloud)),
        duration_s=d.seconds(0.5, _LONGEST_S),
    )


_MAKERS: dict[str, Callable[[_Drawing], FaultKind]] = {
    "kill": _kill,
    "terminate": _terminate,
    "notice": _notice,
    "kill-child": lambda d: s.KillChild(on=d.on(), target=d.target()),
    "pause": lambda d: s.Pause(on=d.on(), target=d.target(), duration_s=d.seconds(0.5, _LONGEST_S)),
    "slow": lambda d: s.Slow(
        on=d.on(),
        target=d.target(),
        factor=d.of(2.0, 4.0, 10.0),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "hold": lambda d: s.Hold(
        on=d.draw(at_points(d.ground.points, max_nth=5)), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "disk-full": lambda d: s.DiskFull(
        on=d.on(), target=d.target(), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "slow-flash": lambda d: s.SlowFlash(
        on=d.on(),
        target=d.target(),
        write_bytes_per_s=d.of(10_000_000, 1_000_000, 100_000),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "partition": lambda d: s.Partition(
        on=d.on(),
        target=d.target(),
        off=d.of("coordinator", "zones", "rest"),
        one_way=d.of(False, True),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "out-of-memory": lambda d: s.OutOfMemory(
        on=d.on(), target=d.target(), replace_after_s=d.seconds(0.1, 3.0)
    ),
    "throttle-cpu": lambda d: s.ThrottleCpu(
        on=d.on(),
        target=d.target(),
        cpus=d.of(0.5, 0.2, 0.1),
        duration_s=d.seconds(0.5, _LONGEST_S),
    ),
    "dns-gone": lambda d: s.DnsGone(
        on=d.on(), target=d.target(), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "grow": lambda d: s.Grow(on=d.on(), count=d.of(1, 2)),
    "misbehave": _misbehave,
    "object-store": lambda d: s.ObjectStore(
        on=d.on(), how=d.draw(misbehaviours.object_store()), duration_s=d.seconds(0.5, _LONGEST_S)
    ),
    "network": lambda d: d.draw(misbehaviours.network(d.times, d.ground.links, _LONGEST_S)),
}
