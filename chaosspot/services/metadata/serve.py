"""A metadata service that stands alone, for whoever wants notices without an attack."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import resource
import shlex
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime

from chaosspot.services.metadata.control import Control
from chaosspot.services.metadata.options import Options
from chaosspot.services.metadata.server import PROVIDERS, MetadataService
from chaosspot.services.metadata.values import Instance

__all__ = ["Options", "serve"]

_SPARE_FILES = 256  # for the connections
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def serve(options: Options, *, write: Callable[[str], None]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; ``write`` gets whole lines to show.

    Raises:
        OSError: an address cannot be bound.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        _allow_files(options.nodes + _SPARE_FILES)
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(
                MetadataService(
                    provider=options.cloud,
                    settings=options.settings,
                    default_region=options.region,
                )
            )
            await _add(service, options)
            for what in options.misbehaviours:
                service.misbehave(what)
            control = Control(service, port=options.control_port)
            await stack.enter_async_context(control)
            write(_listening(options, service, control))
            await _notice(options, service, stop, write)
            await stop.wait()
        write(json.dumps({"event": "stopped"}) if options.json else "stopped")
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


async def _add(service: MetadataService, options: Options) -> None:
    first = ipaddress.ip_address(options.host)
    for number in range(options.nodes):
        instance = Instance(
            node=f"node-{number}",
            zone=options.zones[number % len(options.zones)],
            family=options.family,
            pool=options.pool,
            group=options.group,
        )
        if options.own_addresses:
            await service.add(instance, host=str(first + number), port=options.port)
        else:
            port = options.port + number if options.port else 0
            await service.add(instance, host=options.host, port=port)


async def _notice(
    options: Options, service: MetadataService, stop: asyncio.Event, write: Callable[[str], None]
) -> None:
    if options.notice_after_s is None:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(options.notice_after_s):
            await stop.wait()
    if stop.is_set():
        return
    deadlines = service.publish_all(
        service.nodes()[: options.noticed],
        lead_s=options.lead_s,
        action=options.action,
        lasts_s=options.lasts_s,
    )
    action = options.action or next(iter(PROVIDERS[options.cloud].ACTIONS))
    if options.json:
        write(json.dumps({"event": "notice", "action": action, "deadlines": deadlines}))
        return
    at = datetime.fromtimestamp(max(deadlines.values()), UTC)
    write(f"notice of {action} for {', '.join(deadlines)}: due {at:%H:%M:%S} UTC")


def _listening(options: Options, service: MetadataService, control: Control) -> str:
    nodes = [
        {"node": n, "endpoint": service.endpoint(n), "environment": service.environment(n)}
        for n in service.nodes()
    ]
    if options.json:
        told = {"event": "listening", "cloud": options.cloud, "control": control.endpoint}
        return json.dumps({**told, "nodes": nodes})
    lines = []
    for name in service.nodes():
        lines.append(f"{name}  {service.endpoint(name)}")
        for key, value in service.environment(name).items():
            lines.append(f"  export {key}={shlex.quote(value)}")
    return "\n".join([*lines, f"control  {control.endpoint}"])


def _allow_files(count: int) -> None:
    """Raise the soft limit on open files as far as it is needed and may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
