"""The network of a container, entered from outside: sockets that are there and are served here.

A socket belongs to the network namespace of the thread that makes it. A thread of its own enters
the namespace and ends with it, so that nothing else ever runs there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["Namespace", "may_enter"]

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_CAP_SYS_ADMIN = 21
_SIOCDELRT, _SIOCGIFADDR, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x890C, 0x8915, 0x8916, 0x891C
_GATEWAY = 0x3  # RTF_UP | RTF_GATEWAY
_ROUTE = struct.Struct("@L16s16s16sHhL")  # the beginning of struct rtentry
_ROUTE_BYTES = 120
_LISTEN = b"0A"
_COMMAND_S = 20.0


def may_enter() -> bool:
    """Whether this process has the right to enter a network (CAP_SYS_ADMIN)."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        held = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> _CAP_SYS_ADMIN & 1)


class Namespace:
    """The network namespace of the process ``pid``. Methods block: call them in a thread.

    Raises:
        OSError: here and from every method, when there is no such process or no right to enter.
    """

    def __init__(self, pid: int) -> None:
        self._file = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._aliases: list[str] = []
        self.address = ""  # whoever makes it knows

    def close(self) -> None:
        """Let go of it; sockets that were made there go on."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def closed(self) -> bool:
        """Whether it was let go of."""
        return self._file < 0

    def run(self, act: Callable[[], T]) -> T:
        """What ``act`` returns or raises, done inside."""
        results: list[T] = []
        errors: list[BaseException] = []

        def enter() -> None:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(self._file, _CLONE_NEWNET):
                    code = ctypes.get_errno()
                    raise OSError(code, f"cannot enter a container's network: {os.strerror(code)}")
                results.append(act())
            except BaseException as error:  # noqa: BLE001 - raised again below
                errors.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def bind(self, host: str, port: int) -> socket.socket:
        """A stream socket bound there, which does not listen yet; port 0 takes any free one.

        An address that the node does not have becomes one of its loopback's.

        Raises:
            OSError: it cannot be bound; names the address.
        """
        return self._socket(socket.SOCK_STREAM, host, port)

    def datagrams(self, host: str, port: int) -> socket.socket:
        """The same for datagrams."""
        return self._socket(socket.SOCK_DGRAM, host, port)

    def caller(self) -> socket.socket:
        """A stream socket that connects from there."""
        return self.run(lambda: _non_blocking(socket.SOCK_STREAM))

    def seclude(self) -> None:
        """Take the way to the gateway away: the node reaches its own networks and nothing else."""

        def act() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                for gateway in _gateways():
                    head = _ROUTE.pack(0, _address("0"), gateway, _address("0"), _GATEWAY, 0, 0)
                    fcntl.ioctl(control, _SIOCDELRT, head.ljust(_ROUTE_BYTES, b"\0"))

        self.run(act)

    def interface(self, address: str) -> str:
        """The name of the interface that has that address; empty when none has."""

        def act() -> str:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                for _, name in socket.if_nameindex():
                    asked = struct.pack("256s", name.encode())
                    with contextlib.suppress(OSError):  # it has none
                        told = fcntl.ioctl(control, _SIOCGIFADDR, asked)
                        if socket.inet_ntoa(told[20:24]) == address:
                            return name
            return ""

        return self.run(act)

    def listens(self, port: int) -> bool:
        """Whether some process listens there, on whatever address."""
        return self.run(lambda: any(_listens(table, port) for table in ("tcp", "tcp6")))

    def command(self, argv: Sequence[str], told: str = "") -> str:
        """What a program of this machine says that is run there, and is told something.

        Raises:
            OSError: it fails; with its last line.
        """

        def act() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                argv, input=told, capture_output=True, text=True, timeout=_COMMAND_S, check=False
            )

        done = self.run(act)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
            raise OSError(errno.EIO, f"{' '.join(argv)}: {said}")
        return done.stdout

    def _socket(self, kind: socket.SocketKind, host: str, port: int) -> socket.socket:
        def act() -> socket.socket:
            made = _non_blocking(kind)
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    made.bind((host, port))
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
                    self._own(host)
                    made.bind((host, port))
            except OSError as error:
                made.close()
                reason = (error.strerror or str(error)).lower()
                where = f"{host}:{port} in a container"
                raise OSError(error.errno, f"cannot listen on {where}: {reason}") from error
            return made

        return self.run(act)

    def _own(self, host: str) -> None:
        """Give the loopback interface one more address; called inside."""
        name = f"lo:{len(self._aliases)}".encode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for number, value in ((_SIOCSIFADDR, host), (_SIOCSIFNETMASK, "255.255.255.255")):
                fcntl.ioctl(control, number, struct.pack("16s16s", name, _address(value)))
        self._aliases.append(host)


def _non_blocking(kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.setblocking(False)
    return made


def _address(host: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(host))


def _gateways() -> list[bytes]:
    """Where the default routes of this thread's network lead."""
    with open("/proc/thread-self/net/route", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    found = [row[2] for row in rows if row[1] == "00000000"]
    return [
        struct.pack("=HH4s8x", socket.AF_INET, 0, struct.pack("=I", int(gateway, 16)))
        for gateway in found
    ]


def _listens(table: str, port: int) -> bool:
    try:
        with open(f"/proc/thread-self/net/{table}", "rb") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except FileNotFoundError:  # a kernel without IPv6
        return False
    return any(row[3] == _LISTEN and int(row[1].rpartition(b":")[2], 16) == port for row in rows)
