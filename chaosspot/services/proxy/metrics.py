"""How many bytes went through, in Prometheus' text format, under Toxiproxy's names.

A connection's bytes count when it has ended.
"""

from __future__ import annotations

from collections import Counter

from chaosspot.services.proxy.gate import Gate
from chaosspot.services.proxy.link import Link
from chaosspot.services.proxy.values import Direction

__all__ = ["Metrics"]

_RECEIVED = "toxiproxy_proxy_received_bytes_total"
_SENT = "toxiproxy_proxy_sent_bytes_total"


class Metrics:
    """Counters, by direction and proxy."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def link_ended(self, gate: Gate, direction: Direction, link: Link) -> None:
        """Count a link; what was sent to somebody who went away is not."""
        labels = ",".join(
            f'{name}="{_quoted(value)}"'
            for name, value in (
                ("direction", direction),
                ("listener", gate.listen),
                ("proxy", gate.name),
                ("upstream", gate.upstream),
            )
        )
        self._counts[_RECEIVED, labels] += link.received_bytes
        if not link.broken:
            self._counts[_SENT, labels] += link.sent_bytes

    def text(self) -> str:
        """All counters."""
        lines = []
        for name, what in ((_RECEIVED, "received"), (_SENT, "sent")):
            found = sorted((key[1], n) for key, n in self._counts.items() if key[0] == name)
            if found:
                told = (
                    f"The total number of bytes {what} on a given proxy link in a given direction"
                )
                lines += [f"# HELP {name} {told}", f"# TYPE {name} counter"]
                lines += [f"{name}{{{labels}}} {number}" for labels, number in found]
        return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
