"""What a proxy and its toxics are, as values; and the addresses and names that we accept."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from chaosspot.services.proxy.toxics import KINDS, Attributes, Kind

__all__ = [
    "Direction",
    "Proxy",
    "ProxyError",
    "Toxic",
    "Traffic",
    "check_name",
    "host_port",
    "single",
    "toxic_of",
    "upstream_of",
]

Direction: TypeAlias = Literal["upstream", "downstream"]
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class ProxyError(ValueError):
    """Something cannot be done; nothing has changed. ``status`` is what HTTP says of it."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Toxic(msgspec.Struct, frozen=True, kw_only=True):
    """A toxic: what goes wrong (``type``), which way, and on which share of the connections.

    ``stream`` is "upstream" (from the client) or "downstream", in any case. ``toxicity`` is the
    probability that it runs on a connection, which is decided once for each, when the connection
    is opened or the toxic comes or changes.
    """

    name: str
    type: str
    stream: str
    toxicity: float
    attributes: Attributes

    @property
    def kind(self) -> Kind:
        return KINDS[self.type]

    @property
    def direction(self) -> Direction:
        return "upstream" if self.stream.lower() == "upstream" else "downstream"


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy as it is now: ``listen`` and ``upstream`` are HOST:PORT, the former the real one.

    Toxics are in the order of their chains, upstream ones first.
    """

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[Toxic, ...] = ()


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy has seen: connections in all and now, and bytes sent on in each direction.

    ``struck`` counts by toxic the connections on which it had something to do.
    """

    connections: int
    open: int
    upstream_bytes: int
    downstream_bytes: int
    struck: dict[str, int]


def toxic_of(
    *,
    type: str,  # noqa: A002 - Toxiproxy's word
    stream: str = "downstream",
    name: str | None = None,
    toxicity: float = 1.0,
    attributes: Mapping[str, int] | Attributes | None = None,
) -> Toxic:
    """A toxic from what people write, checked.

    Raises:
        ProxyError: an unknown type, stream or attribute, or a value out of range.
    """
    if stream.lower() not in ("upstream", "downstream"):
        raise ProxyError(f"stream={stream!r}: expected upstream or downstream")
    if type not in KINDS:
        raise ProxyError(f"type={type!r}: expected one of {', '.join(KINDS)}")
    name = f"{type}_{stream}" if name is None else name
    check_name(name)
    if not 0 <= toxicity <= 1:
        raise ProxyError(f"toxicity={toxicity!r}: expected 0 to 1")
    kind = KINDS[type]
    if isinstance(attributes, Attributes) and not isinstance(attributes, kind.attributes):
        raise ProxyError(f"attributes={attributes!r}: not those of type={type!r}")
    given = msgspec.structs.asdict(attributes) if isinstance(attributes, Attributes) else attributes
    try:
        found = msgspec.convert(given or {}, kind.attributes)
    except msgspec.ValidationError as error:
        raise ProxyError(f"attributes of {name!r}: {error}") from error
    return Toxic(name=name, type=type, stream=stream, toxicity=single(toxicity), attributes=found)


def single(number: float) -> float:
    """The nearest 32-bit float, which is what Toxiproxy keeps.

    Raises:
        OverflowError: there is none.
    """
    if math.isinf(number):
        raise OverflowError("infinity is no number of JSON")
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def check_name(name: str) -> None:
    """Refuse names that do not survive in a URL, whichever client is used.

    Raises:
        ProxyError: the name.
    """
    if not _NAME.fullmatch(name) or not name.strip("."):
        raise ProxyError(f"name={name!r}: expected letters, digits, '_', '.', '-'")


def upstream_of(text: str) -> tuple[str, int]:
    """The host and port that connections are to go to.

    Raises:
        ProxyError: it is not HOST:PORT.
    """
    try:
        host, port = host_port(text)
        if not host or port == 0 or not re.fullmatch(r"[\w.:%-]+", host):
            raise ValueError
    except ValueError:
        raise ProxyError(f"upstream={text!r}: expected host:port, such as 127.0.0.1:9000") from None
    return host, port


def host_port(text: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[host]:port``; either may be empty, and an empty port is 0.

    Raises:
        ValueError: with the words of Go's library.
    """
    host, colon, port = text.rpartition(":")
    if text.startswith("["):
        inside, bracket, after = text[1:].partition("]")
        if not bracket:
            raise ValueError(f"address {text}: missing ']' in address")
        if not after.startswith(":"):
            raise ValueError(f"address {text}: missing port in address")
        host, port = inside, after[1:]
    elif not colon:
        raise ValueError(f"address {text}: missing port in address")
    elif ":" in host:
        raise ValueError(f"address {text}: too many colons in address")
    if port and not (port.isascii() and port.isdecimal()):
        raise ValueError(f"lookup tcp/{port}: unknown port")
    if port and not int(port[:9]) <= 65535:
        raise ValueError(f"address {port}: invalid port")
    return host, int(port or 0)
