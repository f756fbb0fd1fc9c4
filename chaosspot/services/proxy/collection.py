"""The proxies of one server, with the manners of Toxiproxy: whoever asks over HTTP gets these."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable

import msgspec

from chaosspot.services.proxy.gate import BadAddress, Gate
from chaosspot.services.proxy.link import Link
from chaosspot.services.proxy.listener import Address, shown
from chaosspot.services.proxy.poller import Poller
from chaosspot.services.proxy.values import Direction, Proxy, ProxyError, Toxic

__all__ = ["Asked", "Collection", "LinkEnded"]

LinkEnded = Callable[[Gate, Direction, Link], None]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy as it is asked for; an empty ``listen`` is any free port of 127.0.0.1."""

    name: str
    upstream: str
    listen: str = ""
    enabled: bool = True


class Collection:
    """Proxies by name, on the running loop.

    Args:
        seed: decides what is left to chance.
        beyond_loopback: allows listening where other machines may reach it.
        link_ended: is told of each link of a connection that has ended.

    Raises:
        ProxyError: from every method that cannot do as told; then nothing has changed.
    """

    def __init__(self, *, seed: int, beyond_loopback: bool, link_ended: LinkEnded) -> None:
        self._seed = seed
        self._beyond_loopback = beyond_loopback
        self._link_ended = link_ended
        self._poller = Poller()
        self._gates: dict[str, Gate] = {}
        self._coming: set[str] = set()  # names that are taken by proxies not yet started

    def gates(self) -> tuple[Gate, ...]:
        """All of them, by name."""
        return tuple(self._gates[name] for name in sorted(self._gates))

    def get(self, name: str) -> Gate:
        if name not in self._gates:
            raise ProxyError("proxy not found", 404)
        return self._gates[name]

    async def create(self, asked: Asked) -> Gate:
        if asked.name in self._gates or asked.name in self._coming:
            raise ProxyError("proxy already exists", 409)
        gate = Gate(
            name=asked.name,
            listen=asked.listen,
            upstream=asked.upstream,
            seed=self._seed,
            poller=self._poller,
            check=self._check,
            link_ended=self._link_ended,
        )
        self._coming.add(asked.name)
        try:
            if asked.enabled:
                await gate.start()
        except BadAddress as error:
            raise ProxyError(f"listen tcp: {error}", 500) from error
        except OSError as error:
            raise _failed(error) from error
        finally:
            self._coming.discard(asked.name)
        self._gates[asked.name] = gate
        return gate

    async def update(
        self,
        name: str,
        *,
        listen: str | None = None,
        upstream: str | None = None,
        enabled: bool | None = None,
    ) -> Gate:
        gate = self.get(name)
        try:
            await gate.update(listen=listen, upstream=upstream, enabled=enabled)
        except OSError as error:
            raise _failed(error) from error
        return gate

    async def remove(self, name: str) -> None:
        gate = self.get(name)
        del self._gates[name]
        await gate.close()

    async def populate(self, asked: list[Asked]) -> tuple[list[Proxy], ProxyError | None]:
        """One after another, until one fails: those that are done, and the error.

        What is there with the same addresses is left as it is; with others, it is moved there
        and loses its toxics.
        """
        done: list[Proxy] = []
        for each in asked:
            try:
                gate = self._gates.get(each.name)
                if gate is None:
                    gate = await self.create(each)
                else:
                    await self._put(gate, each)
            except ProxyError as error:
                return done, error
            done.append(gate.view())
        return done, None

    async def reset(self) -> None:
        """Enable every proxy and remove every toxic."""
        for gate in self.gates():
            try:
                await gate.start()
            except OSError as error:
                raise _failed(error) from error
            for toxic in list(gate.toxics):
                gate.discard(toxic)

    def toxic(self, proxy: str, name: str) -> Toxic:
        found = next((t for t in self.get(proxy).toxics if t.name == name), None)
        if found is None:
            raise ProxyError("toxic not found", 404)
        return found

    def add_toxic(self, proxy: str, toxic: Toxic) -> None:
        gate = self.get(proxy)
        if any(known.name == toxic.name for known in gate.toxics):
            raise ProxyError("toxic already exists", 409)
        gate.add(toxic)

    def replace_toxic(self, proxy: str, toxic: Toxic) -> None:
        self.toxic(proxy, toxic.name)
        self.get(proxy).replace(toxic)

    def remove_toxic(self, proxy: str, name: str) -> None:
        self.get(proxy).discard(self.toxic(proxy, name))

    async def close(self) -> None:
        gates, self._gates = list(self._gates.values()), {}
        await asyncio.gather(*(gate.close() for gate in gates))
        self._poller.close()

    async def _put(self, gate: Gate, asked: Asked) -> None:
        if asked.upstream == gate.upstream and await gate.is_at(asked.listen):
            return
        try:
            await gate.update(
                listen=asked.listen or None, upstream=asked.upstream, enabled=asked.enabled
            )
        except BadAddress as error:
            raise ProxyError(f"listen tcp: {error}", 500) from error
        except OSError as error:
            raise _failed(error) from error
        for toxic in list(gate.toxics):
            gate.discard(toxic)

    def _check(self, address: Address) -> None:
        _, host, _ = address
        if not self._beyond_loopback and not ipaddress.ip_address(host.split("%")[0]).is_loopback:
            raise OSError(f"listen tcp {shown(address)}: expected a loopback address")


def _failed(error: OSError) -> ProxyError:
    return ProxyError(error.strerror or str(error), 500)
