"""Which server the proxies are in: the embedded one, or the real one of Toxiproxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from chaosspot.services.proxy import real
from chaosspot.services.proxy.control import ProxyControl
from chaosspot.services.proxy.service import ProxyService

__all__ = ["BACKENDS", "Backend", "Choice", "choose", "serving"]

Backend: TypeAlias = Literal["embedded", "real", "auto"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is used; ``real`` is None for the embedded one."""

    real: real.Real | None = None


def choose(backend: str, environ: Mapping[str, str]) -> Choice:
    """``auto`` is the real one where there is one, else the embedded one.

    Raises:
        ValueError: an unknown backend, or the real one where there is none.
    """
    if backend not in BACKENDS:
        raise ValueError(f"proxy backend {backend!r}: expected one of {', '.join(BACKENDS)}")
    found = None if backend == "embedded" else real.find(environ)
    if backend == "real" and found is None:
        raise ValueError(
            f"proxy backend 'real': no {real.PROGRAM} on PATH, and {real.URL_VARIABLE} is not set"
        )
    return Choice(real=found)


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
