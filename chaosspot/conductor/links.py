"""The links of a run's nodes: proxies where a fault may impair them, else the way itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import anyio
import msgspec

from chaosspot.schedule import Link, Network, Schedule, Toxic
from chaosspot.services.proxy import ProxyControl, ProxyService
from chaosspot.services.proxy.toxics import KINDS
from chaosspot.services.proxy.values import toxic_of

__all__ = ["Links", "check_toxics", "links_of"]


def links_of(schedule: Schedule) -> frozenset[Link]:
    """The links that some fault impairs."""
    return frozenset(fault.link for fault in schedule.fault if isinstance(fault, Network))


def check_toxics(schedule: Schedule, *, own: bool) -> None:
    """Refuse toxics that no proxy knows, and without ``own`` those that Toxiproxy does not have.

    Raises:
        ValueError: with the fault, and the value.
    """
    for index, fault in enumerate(schedule.fault):
        for toxic in fault.toxic if isinstance(fault, Network) else ():
            try:
                toxic_of(
                    type=toxic.type,
                    stream=toxic.stream,
                    toxicity=toxic.toxicity,
                    attributes=toxic.attributes,
                )
            except ValueError as error:
                raise ValueError(f"fault[{index}].toxic: {error}") from error
            if not own and KINDS[toxic.type].own:
                raise ValueError(
                    f"fault[{index}].toxic: type={toxic.type!r} is not Toxiproxy's: it needs the "
                    "embedded proxy"
                )


class _Impairment(msgspec.Struct, frozen=True, kw_only=True):
    link: Link
    names: frozenset[str] | None
    toxics: tuple[Toxic, ...]


class Links:
    """One proxy a node and link, for the links of ``impaired``; an ``inject.Links``."""

    def __init__(self, control: ProxyControl | None, impaired: Collection[Link]) -> None:
        self._control = control
        self._links = frozenset(impaired)
        self._laid: dict[Link, list[str]] = {link: [] for link in impaired}
        self._active: dict[int, _Impairment] = {}
        self._passed: dict[tuple[int, str], int] = {}  # bytes before, by number and node
        self._last = 0
        self._one_at_a_time = anyio.Lock()  # a node may come while a link is being impaired

    async def lay(self, node: str, link: Link, upstream: str) -> str:
        """The HOST:PORT by which that node is to reach ``upstream`` over that link."""
        if link not in self._links:
            return upstream
        async with self._one_at_a_time:
            return await self._lay(node, link, upstream)

    async def _lay(self, node: str, link: Link, upstream: str) -> str:
        name = _name(node, link)
        if node in self._laid[link]:  # it was started again; what it is led to may have moved
            laid = await self._proxies.proxy(name)
            if laid.upstream != upstream:
                laid = await self._proxies.update(name, upstream=upstream)
            return laid.listen
        host = upstream.rpartition(":")[0]
        laid = await self._proxies.create(name, upstream=upstream, listen=f"{host}:0")
        self._laid[link].append(node)
        for number, impairment in self._active.items():
            if impairment.link == link and impairment.names is None:
                await self._poison(node, number, impairment)
        return laid.listen

    async def impair(self, link: Link, names: Sequence[str] | None, toxics: Sequence[Toxic]) -> int:
        self._last += 1
        number = self._last
        only = None if names is None else frozenset(names)
        impairment = _Impairment(link=link, names=only, toxics=tuple(toxics))
        async with self._one_at_a_time:
            self._active[number] = impairment
            for node in self._of(impairment):
                await self._poison(node, number, impairment)
        return number

    def struck(self, number: int, *, cuts: bool) -> list[str]:
        impairment = self._active[number]
        toxics = {_toxic(number, place) for place in range(len(impairment.toxics))}
        return [node for node in self._of(impairment) if self._did(node, number, toxics, cuts=cuts)]

    async def mend(self, number: int) -> None:
        async with self._one_at_a_time:
            impairment = self._active.pop(number)
            for node in self._of(impairment):
                proxy = _name(node, impairment.link)
                for place in range(len(impairment.toxics)):
                    await self._proxies.remove_toxic(proxy, _toxic(number, place))

    @property
    def _proxies(self) -> ProxyControl:
        assert self._control is not None, "a run whose faults impair links has proxies"
        return self._control

    def _of(self, impairment: _Impairment) -> Iterator[str]:
        for node in self._laid[impairment.link]:
            if impairment.names is None or node in impairment.names:
                yield node

    async def _poison(self, node: str, number: int, impairment: _Impairment) -> None:
        for place, toxic in enumerate(impairment.toxics):
            await self._proxies.add_toxic(
                _name(node, impairment.link),
                type=toxic.type,
                stream=toxic.stream,
                name=_toxic(number, place),
                toxicity=toxic.toxicity,
                attributes=toxic.attributes,
            )
        if isinstance(self._control, ProxyService):
            traffic = self._control.traffic(_name(node, impairment.link))
            passed = traffic.upstream_bytes + traffic.downstream_bytes
            self._passed[number, node] = passed

    def _did(self, node: str, number: int, toxics: set[str], *, cuts: bool) -> bool:
        """Whether one of them had something to do, or with ``cuts``, whether there is a connection
        and nothing came over it; the real server does not tell."""
        if not isinstance(self._control, ProxyService):
            return True
        traffic = self._control.traffic(_name(node, self._active[number].link))
        if any(traffic.struck.get(toxic) for toxic in toxics):
            return True
        passed = traffic.upstream_bytes + traffic.downstream_bytes
        return cuts and traffic.open > 0 and passed == self._passed.get((number, node))


def _name(node: str, link: Link) -> str:
    return f"{node}.{link}"


def _toxic(number: int, place: int) -> str:
    return f"fault-{number}-{place}"
