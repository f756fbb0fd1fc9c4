"""What has come to a proxy of the real server, by all that can be known of that.

The server counts a connection's bytes when it has ended; those of open ones, the kernel knows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import msgspec

from chaosspot.services.proxy.sockets import open_bytes

__all__ = ["RECEIVED", "Passed", "passed", "received"]

RECEIVED = "toxiproxy_proxy_received_bytes_total"
_SAMPLE = re.compile(RECEIVED + r'\{(?:.*,)?proxy="((?:[^"\\]|\\.)*)".*\} (\S+)')


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that have come to a proxy: on connections that have ended, and on each open one."""

    ended_bytes: int = 0
    open: Mapping[tuple[str, int], int] = {}

    def since(self, before: Passed) -> bool:
        """Whether anything has come since then."""
        if any(count > before.open.get(client, 0) for client, count in self.open.items()):
            return True
        known = sum(count for client, count in before.open.items() if client not in self.open)
        return self.ended_bytes > before.ended_bytes + known


def passed(name: str, listen: str, metrics: str) -> Passed:
    """What has come to the proxy with that name and address, by the server's ``metrics``."""
    return Passed(ended_bytes=received(metrics)[name], open=open_bytes(listen))


def received(metrics: str) -> Counter[str]:
    """Bytes from clients and servers, by proxy, in Prometheus' text format."""
    found: Counter[str] = Counter()
    for line in metrics.splitlines():
        if sample := _SAMPLE.fullmatch(line.strip()):
            found[sample[1]] += int(float(sample[2]))
    return found
