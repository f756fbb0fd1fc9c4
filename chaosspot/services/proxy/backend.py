"""Which server the proxies are in: the embedded one, or the real one of Toxiproxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from chaosspot.services.proxy import real
from chaosspot.services.proxy.client import BackendError, Client
from chaosspot.services.proxy.control import ProxyControl
from chaosspot.services.proxy.service import ProxyService
from chaosspot.services.proxy.values import ProxyError

__all__ = ["BACKENDS", "Backend", "Choice", "answering", "choose", "serving"]

Backend: TypeAlias = Literal["embedded", "real", "auto"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is used; ``real`` is None for the embedded one."""

    real: real.Real | None = None

    @property
    def url(self) -> str | None:
        """Where a server is that runs already, and goes on when the run is over."""
        return None if self.real is None else self.real.url


def choose(backend: str, environ: Mapping[str, str]) -> Choice:
    """``auto`` is the real one where there is one, else the embedded one.

    Raises:
        ValueError: an unknown backend, or a URL that is none.
        BackendError: the real one is wanted, and there is none.
    """
    if backend not in BACKENDS:
        raise ValueError(f"proxy backend {backend!r}: expected one of {', '.join(BACKENDS)}")
    found = None if backend == "embedded" else real.find(environ)
    if backend == "real" and found is None:
        raise BackendError(
            f"proxy backend 'real': no {real.PROGRAM} on PATH, and {real.URL_VARIABLE} is not set"
        )
    return Choice(real=found)


async def answering(choice: Choice, *, timeout_s: float = 5.0) -> None:
    """See that a server that is to run already does, and tells what passes through it.

    Raises:
        BackendError: it does not.
    """
    if choice.url is None:
        return
    async with Client(choice.url, timeout_s=timeout_s) as client:
        try:
            await client.version()
            await client.names()
        except ProxyError as error:
            raise BackendError(f"{choice.url}: not Toxiproxy's: {error}") from error
        try:
            await client.metrics()
        except ProxyError as error:
            raise BackendError(
                f"{choice.url} has no /metrics, without which no effect can be seen: "
                f"start it with -proxy-metrics ({real.PROGRAM} 2.4 or later)"
            ) from error


@asynccontextmanager
async def serving(
    choice: Choice, *, environ: Mapping[str, str], seed: int = 0, log: Path | None = None
) -> AsyncIterator[tuple[ProxyControl, str]]:
    """A control of proxies, and what they are in, with its version, for the record of a run.

    Args:
        environ: what a real server that is started gets.
        seed: decides what is left to chance, in the embedded one.
        log: where the real one's output goes.

    Raises:
        BackendError: the real one cannot be started or does not answer.
    """
    if choice.real is None:
        async with ProxyService(seed=seed) as service:
            yield service, f"embedded, chaosspot {metadata.version('chaosspot')}"
        return
    async with real.running(choice.real, environ=environ, seed=seed, log=log) as client:
        yield client, f"toxiproxy-server {await client.version()}"
