"""Nodes that cannot reach others: packets dropped in the node's own network, and probed.

The rules are in chains of their own in each node's network namespace, and go with it. A cut is
claimed only when datagrams from and to the node were seen to be lost over every network that it
shares with those it is cut off from.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from chaosspot.cluster import Cut
from chaosspot.cluster.namespaces import Namespace
from chaosspot.schedule import Node

__all__ = ["Member", "Partitions", "apart"]

_RESTORE = ("iptables-restore", "--wait=10", "--noflush")
_LOST_S = 0.4  # how long nothing must arrive; on one machine it takes microseconds
_ARRIVES_S = 10.0
_AGAIN_S = 0.05
_TRIES = 3

T = TypeVar("T")
Flow = tuple[str, str, str]  # from whom, to whom, over which network


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has a network now; ``addresses`` are by the networks that it is in."""

    node: Node
    network: Namespace
    addresses: Mapping[str, str]


def apart(cut: Cut, node: Node, other: Node, together: Iterable[str]) -> bool:
    """Whether ``cut``, which hits the nodes ``together``, keeps ``node`` of them from another."""
    if other.name in together or other.name == node.name:
        return False
    if cut.off == "coordinator":
        return other.role == "coordinator"
    if cut.off == "zones":
        return other.role == "worker" and other.zone != node.zone
    return True


class _Active(msgspec.Struct, kw_only=True):
    cut: Cut
    names: tuple[str, ...]
    dropped: dict[str, set[str]]  # by member, the addresses that it has rules for


class Partitions:
    """The cuts of one cluster; ``members`` tells who has a network now."""

    def __init__(self, members: Callable[[], list[Member]], threads: anyio.CapacityLimiter) -> None:
        self._members = members
        self._threads = threads
        self._active: dict[int, _Active] = {}
        self._last = 0
        self._lock = anyio.Lock()

    async def cut(self, names: Sequence[str], cut: Cut) -> tuple[int, dict[str, float]]:
        """Cut them off; a number, and when each was seen cut off.

        Raises:
            OSError: a rule cannot be made, or something still passes; all is undone.
        """
        async with self._lock:
            self._last += 1
            active = _Active(cut=cut, names=tuple(names), dropped={})
            self._active[self._last] = active
            try:
                for member in self._hit(active):
                    await self._thread(partial(self._drop, self._last, active, member))
                seen = await self._thread(partial(self._seen, active))
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._undo(self._last)
                raise
            return self._last, seen

    async def mend(self, number: int) -> None:
        """Undo a cut, and see that who was cut off is reached again.

        Raises:
            OSError: somebody who lives is not.
        """
        async with self._lock:
            active = self._active[number]
            await self._undo(number)
            if not self._active:
                await self._thread(partial(self._see_whole, active))

    async def join(self, newcomer: str) -> None:
        """Who comes during a cut is cut off as well."""
        async with self._lock:
            for number, active in self._active.items():
                for member in self._hit(active):
                    await self._thread(partial(self._drop, number, active, member))

    async def _undo(self, number: int) -> None:
        active = self._active.pop(number)
        for member in self._hit(active):
            if member.node.name in active.dropped:
                await self._thread(partial(_change, member, _removal(number)))

    # In a thread.

    def _hit(self, active: _Active) -> list[Member]:
        return [member for member in self._members() if member.node.name in active.names]

    def _others(self, active: _Active, member: Member) -> list[Member]:
        return [
            other
            for other in self._members()
            if apart(active.cut, member.node, other.node, active.names)
        ]

    def _drop(self, number: int, active: _Active, member: Member) -> None:
        """Make the rules that are missing; nothing for a node that is gone."""
        others = self._others(active, member)
        wanted = {address for other in others for address in other.addresses.values()}
        known = active.dropped.setdefault(member.node.name, set())
        fresh, first = wanted - known, not known
        if fresh and _change(member, _addition(number, fresh, active.cut, first=first)):
            known |= fresh

    def _seen(self, active: _Active) -> dict[str, float]:
        found: dict[str, float] = {}
        for member in self._hit(active):
            others = self._others(active, member)
            for _ in range(_TRIES):
                cut, open_ = _flows(member, others, one_way=active.cut.one_way)
                passed = _arrivals([member, *others], {*cut, *open_}, within_s=_LOST_S)
                if not cut & passed:
                    break
            else:
                raise OSError(f"still passes after it was cut: {_shown(cut & passed)}")
            if open_ - passed:
                passed |= _arrivals([member, *others], open_ - passed, within_s=_ARRIVES_S)
            if open_ - passed:
                raise OSError(f"does not pass, and should: {_shown(open_ - passed)}")
            if cut and member.node.name in {m.node.name for m in self._members()}:
                found[member.node.name] = time.monotonic()
        return found

    def _see_whole(self, active: _Active) -> None:
        deadline = time.monotonic() + _ARRIVES_S
        for member in self._hit(active):
            lost: set[Flow] = set()
            while time.monotonic() < deadline:
                others = self._others(active, member)
                cut, open_ = _flows(member, others, one_way=active.cut.one_way)
                wanted = cut | open_
                lost = wanted - _arrivals([member, *others], wanted, within_s=_ARRIVES_S / 5)
                alive = {m.node.name for m in self._members()}
                lost = {flow for flow in lost if flow[0] in alive and flow[1] in alive}
                if not lost:
                    break
            if lost:
                raise OSError(f"does not pass after it was mended: {_shown(lost)}")

    async def _thread(self, act: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(act, limiter=self._threads)


def _chain(number: int) -> str:
    return f"CHAOSSPOT-{number}"


def _addition(number: int, addresses: Iterable[str], cut: Cut, *, first: bool) -> str:
    chain = _chain(number)
    lines = ["*filter"]
    if first:
        lines += [f":{chain} - [0:0]", f"-I INPUT 1 -j {chain}", f"-I OUTPUT 1 -j {chain}"]
    for address in sorted(addresses):
        lines.append(f"-A {chain} -s {address} -j DROP")
        if not cut.one_way:
            lines.append(f"-A {chain} -d {address} -j DROP")
    return "\n".join([*lines, "COMMIT", ""])


def _removal(number: int) -> str:
    chain = _chain(number)
    lines = ["*filter", f"-D INPUT -j {chain}", f"-D OUTPUT -j {chain}", f"-F {chain}"]
    return "\n".join([*lines, f"-X {chain}", "COMMIT", ""])


def _change(member: Member, rules: str) -> bool:
    """Whether it was made; not if the node is gone, whose rules are gone as well."""
    try:
        member.network.command(_RESTORE, rules)
    except FileNotFoundError as error:
        raise OSError(f"no {_RESTORE[0]} on this machine") from error
    except OSError:
        if member.network.closed:
            return False
        raise
    return True


def _flows(
    member: Member, others: Iterable[Member], *, one_way: bool
) -> tuple[set[Flow], set[Flow]]:
    """What must not arrive any more, and what must arrive still."""
    cut: set[Flow] = set()
    open_: set[Flow] = set()
    me = member.node.name
    for other in others:
        them = other.node.name
        for network in member.addresses.keys() & other.addresses.keys():
            cut.add((them, me, network))
            (open_ if one_way else cut).add((me, them, network))
    return cut, open_


def _arrivals(members: Iterable[Member], wanted: set[Flow], *, within_s: float) -> set[Flow]:
    """Which of these datagrams arrive; ends at once when all have."""
    ends: dict[tuple[str, str], tuple[socket.socket, tuple[str, int]]] = {}
    arrived: set[Flow] = set()
    try:
        for member in members:
            for network, address in member.addresses.items():
                try:
                    bound = member.network.datagrams(address, 0)
                except OSError:
                    continue  # it has just ended: nothing arrives
                ends[member.node.name, network] = (bound, bound.getsockname())
        names = dict(enumerate(sorted(wanted)))
        deadline = time.monotonic() + within_s
        for turn in itertools.count():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or wanted <= arrived:
                return arrived
            if turn % 2 == 0:
                for number, flow in names.items():
                    _send(ends, flow, number)
            ready, _, _ = select.select([end for end, _ in ends.values()], (), (), _AGAIN_S)
            for end in ready:
                number = int.from_bytes(end.recv(16))
                if number in names:
                    arrived.add(names[number])
    finally:
        for end, _ in ends.values():
            end.close()
    return arrived


def _send(
    ends: Mapping[tuple[str, str], tuple[socket.socket, tuple[str, int]]], flow: Flow, number: int
) -> None:
    who, whom, network = flow
    if (who, network) in ends and (whom, network) in ends:
        try:
            ends[who, network][0].sendto(number.to_bytes(4), ends[whom, network][1])
        except OSError:
            return  # a rule says no at once, or the way is gone


def _shown(flows: Iterable[Flow]) -> str:
    return ", ".join(f"{who} to {whom} over {network}" for who, whom, network in sorted(flows))
