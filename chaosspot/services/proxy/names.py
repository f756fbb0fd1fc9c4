"""From host names to addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

__all__ = ["addresses"]

_Found = tuple[socket.AddressFamily, tuple[Any, ...]]


async def addresses(host: str, port: int) -> list[_Found]:
    """The addresses of a host, IPv4 first; an IP address is its own and asks nobody.

    Raises:
        OSError: there is none, with the words of Go's library.
    """
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if number.version == 4:
            return [(socket.AF_INET, (host, port))]
        return [(socket.AF_INET6, (host, port, 0, 0))]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise OSError(f"lookup {host}: no such host") from None
    pairs = [(info[0], info[4]) for info in found]
    return sorted(pairs, key=lambda pair: pair[0] != socket.AF_INET)
