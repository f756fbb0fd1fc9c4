"""What the kernel counts on open connections: the bytes of those that a server of this machine has.

Asked for over netlink (sock_diag), which needs no right; see linux/inet_diag.h and linux/tcp.h.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct

from chaosspot.services.proxy.values import host_port

__all__ = ["open_bytes"]

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED, _CLOSE_WAIT = 1, 8
_STATES = 1 << _ESTABLISHED | 1 << _CLOSE_WAIT
_HEAD = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI48x")
_TOLD = struct.Struct("!4xHH16s16s")  # the ports and the addresses
_TOLD_BYTES = 72
_COUNTS = struct.Struct("=120xQQ")  # tcpi_bytes_acked, tcpi_bytes_received
_BUFFER_BYTES = 1 << 16
_WAIT_S = 2.0


def open_bytes(listen: str) -> dict[tuple[str, int], int]:
    """By the client's address, the bytes that each open connection to ``listen`` has carried.

    ``listen`` is HOST:PORT with the address in numbers; empty where the kernel does not tell, or
    where the server is not on this machine.
    """
    try:
        host, port = host_port(listen)
        address = ipaddress.ip_address(host.strip("[]"))
        return _asked(socket.AF_INET6 if address.version == 6 else socket.AF_INET, address, port)
    except (OSError, ValueError, struct.error):
        return {}


def _asked(
    family: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_WAIT_S)
        body = _ASKED.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES)
        head = _HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 1, 0)
        kernel.sendto(head + body, (0, 0))
        while True:
            data = memoryview(kernel.recv(_BUFFER_BYTES))
            while data:
                size, kind, *_ = _HEAD.unpack_from(data)
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                told = data[_HEAD.size : size]
                from_port, to_port, source, target = _TOLD.unpack_from(told)
                width = len(address.packed)
                if (from_port, source[:width]) == (port, address.packed):
                    peer = str(ipaddress.ip_address(target[:width])), to_port
                    end = told[1] == _CLOSE_WAIT  # it is counted as a byte
                    found[peer] = _counted(told[_TOLD_BYTES:]) - end
                data = data[(size + 3) & ~3 :]


def _counted(attributes: memoryview) -> int:
    while len(attributes) >= 4:
        size, kind = struct.unpack_from("=HH", attributes)
        if kind == _INFO:
            acked, received = _COUNTS.unpack_from(attributes[4:size])
            return int(acked + received)
        attributes = attributes[(size + 3) & ~3 :]
    return 0
