"""An embedded server on an event loop of its own, for callers who have none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from anyio.from_thread import start_blocking_portal
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer

from chaosspot.services.proxy.api import Api
from chaosspot.services.proxy.service import ProxyService

__all__ = ["hosted", "toxiproxy_client"]

_NO_PROXY = ("NO_PROXY", "no_proxy")


@contextmanager
def hosted(*, seed: int = 0, metrics: bool = False) -> Iterator[str]:
    """The base URL of a server that lives as long as the context."""
    with start_blocking_portal("asyncio") as portal:
        service = ProxyService(seed=seed)
        with portal.wrap_async_context_manager(service):
            api = portal.call(_api, service, metrics)
            with portal.wrap_async_context_manager(api):
                yield api.endpoint


@contextmanager
def toxiproxy_client(*, seed: int = 0) -> Iterator[Any]:
    """A client of toxiproxy-python, and a server that it talks to.

    The client keeps the server's address in its class, for all clients of the process: it is put
    back at the end. So is the environment, in which 127.0.0.1 needs no proxy meanwhile.
    """
    before = APIConsumer.host, APIConsumer.port
    variables = {name: os.environ.get(name) for name in _NO_PROXY}
    with hosted(seed=seed) as url:
        address = urlsplit(url)
        client = Toxiproxy()
        try:
            for name, value in variables.items():
                os.environ[name] = ",".join(filter(None, [value, "127.0.0.1"]))
            client.update_api_consumer(address.hostname, address.port)
            yield client
        finally:
            APIConsumer.host, APIConsumer.port = before
            for name, value in variables.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


async def _api(service: ProxyService, metrics: bool) -> Api:
    return Api(service, metrics=metrics)
