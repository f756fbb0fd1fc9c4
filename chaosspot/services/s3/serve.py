"""An object store that stands alone, for whoever wants one that fails without an attack."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress

import msgspec

from chaosspot.services.s3.exchange import Injection
from chaosspot.services.s3.options import Options
from chaosspot.services.s3.server import S3Service
from chaosspot.words import plain

__all__ = ["Options", "serve"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOKED_AFTER_EVERY_S = 0.5


async def serve(options: Options, *, write: Callable[[str], None]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; ``write`` gets whole lines to show.

    Raises:
        OSError: the address cannot be bound, or the store does not serve any more; or what
            ``write`` raises.
    """
    stop = asyncio.Event()
    unheard: list[OSError] = []

    def tell(injection: Injection) -> None:
        try:
            write(_injected(injection, json_=options.json))
        except OSError as error:  # not the client's matter, whose request this is
            unheard.append(error)
            stop.set()

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        async with S3Service(
            bucket=options.bucket,
            region=options.region,
            versioned=options.versioned,
            host=options.host,
            port=options.port,
            on_injection=tell,
        ) as service:
            for what in options.misbehaviours:
                service.misbehave(what)
            write(_listening(service, json_=options.json))
            while not stop.is_set():
                service.check()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOKED_AFTER_EVERY_S):
                        await stop.wait()
        if unheard:
            raise unheard[0]
        write(json.dumps({"event": "stopped"}) if options.json else "stopped")
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _listening(service: S3Service, *, json_: bool) -> str:
    environment = service.environment(environ={})
    if json_:
        told = {"event": "listening", "endpoint": service.endpoint, "bucket": service.bucket}
        return json.dumps({**told, "environment": environment})
    lines = [f"s3://{service.bucket}  {service.endpoint}"]
    lines += [f"  export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join(lines)


def _injected(injection: Injection, *, json_: bool) -> str:
    if json_:
        return json.dumps({"event": "injection", **msgspec.to_builtins(injection)})
    detail = " ".join(f"{name}={value}" for name, value in injection.detail.items())
    return plain(f"{injection.kind}  {injection.operation} {injection.key!r}  {detail}")
