"""A proxy server that stands alone, with the flags of toxiproxy-server."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from chaosspot.services.proxy.api import Api
from chaosspot.services.proxy.collection import Asked
from chaosspot.services.proxy.listener import resolve
from chaosspot.services.proxy.service import ProxyService
from chaosspot.services.proxy.values import ProxyError

__all__ = ["Options", "serve"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is served.

    The API listens at ``host`` and ``port``. The proxies in ``config``, a JSON file as POST
    /populate takes it, are there from the start. Addresses that other machines may reach, the
    API's or a proxy's, need ``beyond_loopback``.

    Raises:
        ValueError: a bad value, which the message names.
    """

    host: str = "localhost"
    port: int = 8474
    config: Path | None = None
    seed: int = 0
    metrics: bool = False
    beyond_loopback: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port!r}: expected 0 to 65535")


async def serve(options: Options, *, write: Callable[[str], None]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; ``write`` gets whole lines to show.

    Raises:
        OSError: the API's address cannot be bound.
        ValueError: the configuration cannot be used, or an address is not on loopback.
    """
    asked = [] if options.config is None else _asked(options.config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        _allow_files()
        _, host, _ = await resolve(options.host, options.port)
        if not options.beyond_loopback and not ipaddress.ip_address(host).is_loopback:
            raise ValueError(
                f"host={options.host!r}: expected a loopback address, or beyond_loopback"
            )
        async with AsyncExitStack() as stack:
            service = ProxyService(seed=options.seed, beyond_loopback=options.beyond_loopback)
            await stack.enter_async_context(service)
            api = Api(service, host=host, port=options.port, metrics=options.metrics)
            await stack.enter_async_context(api)
            try:
                proxies = await service.populate(asked)
            except ProxyError as error:
                raise ValueError(f"{options.config}: {error}") from error
            lines = [f"api  {api.endpoint}"]
            lines += [f"{p.name}  {p.listen}  ->  {p.upstream}" for p in proxies]
            write("\n".join(lines))
            await stop.wait()
        write("stopped")
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    upstream: str
    listen: str = ""
    enabled: bool = True


def _asked(config: Path) -> list[Asked]:
    try:
        entries = msgspec.json.decode(config.read_bytes(), type=list[_Entry])
    except OSError as error:
        raise ValueError(f"cannot read {str(config)!r}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ValueError(f"{config}: {error}") from error
    return [Asked(**msgspec.structs.asdict(entry)) for entry in entries]


def _allow_files() -> None:
    """Raise the soft limit on open files to the hard one: a connection takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
