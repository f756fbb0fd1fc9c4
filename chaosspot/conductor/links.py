"""The links of a run's nodes: proxies where a fault may impair them, else the way itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
import msgspec

from chaosspot import history as h
from chaosspot.conductor.effects import effects_of
from chaosspot.conductor.feed import Feed
from chaosspot.schedule import Link, Network, Schedule, Toxic
from chaosspot.services.proxy import ProxyControl
from chaosspot.services.proxy.backend import Choice, serving
from chaosspot.services.proxy.toxics import KINDS
from chaosspot.services.proxy.values import toxic_of
from chaosspot.undo import Lease, Proxies, procfs

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
    """One proxy a node and link, for the links of ``impaired``; an ``inject.Links``.

    ``control`` may be None when there are none. The names of proxies begin with ``prefix``.
    """

    def __init__(
        self, control: ProxyControl | None, impaired: Collection[Link], *, prefix: str = ""
    ) -> None:
        if control is not None:
            self._proxies, self._effects = control, effects_of(control)
        self._prefix = prefix
        self._links = frozenset(impaired)
        self._laid: dict[Link, list[str]] = {link: [] for link in impaired}
        self._active: dict[int, _Impairment] = {}
        self._last = 0
        self._one_at_a_time = anyio.Lock()  # a node may come while a link is being impaired

    @classmethod
    @asynccontextmanager
    async def serving(
        cls,
        impaired: Collection[Link],
        *,
        choice: Choice,
        seed: int,
        log: Path,
        lease: Lease,
        feed: Feed,
    ) -> AsyncIterator[Self]:
        """With the proxies that are needed, which are gone when this is left.

        Raises:
            BackendError: the server of ``choice`` cannot be started or does not answer.
        """
        if not impaired:
            yield cls(None, impaired)
            return
        environ = {**os.environ, procfs.RUN: lease.id}  # by which a leftover is found
        async with (
            serving(choice, environ=environ, seed=seed, log=log) as (control, server),
            _owing(lease, choice.url) as prefix,
        ):
            feed.note(h.Proxied, server=server, links=tuple(sorted(impaired)))
            yield cls(control, impaired, prefix=prefix)

    def impairs(self, link: Link) -> bool:
        """Whether some fault of the run impairs that link, which goes through proxies then."""
        return link in self._links

    async def lay(self, node: str, link: Link, upstream: str) -> str:
        """The HOST:PORT by which that node is to reach ``upstream`` over that link."""
        if link not in self._links:
            return upstream
        async with self._one_at_a_time:
            return await self._lay(node, link, upstream)

    async def _lay(self, node: str, link: Link, upstream: str) -> str:
        name = self._name(node, link)
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

    async def struck(self, number: int, *, cuts: bool) -> list[str]:
        async with self._one_at_a_time:
            impairment = self._active[number]
            toxics = {_toxic(number, i): toxic for i, toxic in enumerate(impairment.toxics)}
            return [
                node
                for node in self._of(impairment)
                if await self._effects.struck(
                    self._name(node, impairment.link), number, toxics, cuts=cuts
                )
            ]

    async def mend(self, number: int) -> None:
        async with self._one_at_a_time:
            impairment = self._active.pop(number)
            for node in self._of(impairment):
                proxy = self._name(node, impairment.link)
                for place in range(len(impairment.toxics)):
                    await self._proxies.remove_toxic(proxy, _toxic(number, place))

    def _name(self, node: str, link: Link) -> str:
        return f"{self._prefix}{node}.{link}"

    def _of(self, impairment: _Impairment) -> Iterator[str]:
        for node in self._laid[impairment.link]:
            if impairment.names is None or node in impairment.names:
                yield node

    async def _poison(self, node: str, number: int, impairment: _Impairment) -> None:
        for place, toxic in enumerate(impairment.toxics):
            await self._proxies.add_toxic(
                self._name(node, impairment.link),
                type=toxic.type,
                stream=toxic.stream,
                name=_toxic(number, place),
                toxicity=toxic.toxicity,
                attributes=toxic.attributes,
            )
        await self._effects.begin(self._name(node, impairment.link), number)


@asynccontextmanager
async def _owing(lease: Lease, url: str | None) -> AsyncIterator[str]:
    """How the names of proxies begin that are removed here, and by whoever outlives this process.

    With no ``url`` the server ends with the run: nothing is owed.
    """
    if url is None:
        yield ""
        return
    owed = Proxies.of(lease.id, url)
    token = lease.promise(owed)
    try:
        yield owed.prefix
    finally:
        # What cannot be undone now is tried once more by the lease, and told if that fails, too.
        with anyio.CancelScope(shield=True), suppress(OSError):
            await anyio.to_thread.run_sync(owed.heal)
            lease.kept(token)


def _toxic(number: int, place: int) -> str:
    return f"fault-{number}-{place}"
