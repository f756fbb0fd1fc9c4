"""One HTTP exchange after another with one address, each bounded and each to be broken off.

The timeout of a socket bounds one read, not an answer that trickles. So an exchange has a deadline
of its own, from connecting to the last byte. Every exchange has a connection of its own, since the
services close them, and no proxy is asked.
"""

from __future__ import annotations

import errno
import http.client
import io
import os
import select
import socket
import time
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

from chaosspot.trainer.config import InputError
from chaosspot.trainer.watch.values import Answer, Failure, Moment, Outcome, Request

__all__ = ["Stopped", "Wire"]

_LARGEST_ANSWER_BYTES = 1 << 20  # Azure tells the events of a whole scale set


class Stopped(Exception):
    """:meth:`Wire.stop` was called."""


class Wire:
    """The way to one endpoint; used by one thread, and stopped by any.

    Args:
        endpoint: base URL, ``http://host[:port][/prefix]``.

    Raises:
        InputError: it is not an http URL.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            url = urlsplit(endpoint)
            self._address = (url.hostname or "", url.port or 80)
        except ValueError as error:
            raise InputError(f"metadata endpoint is not a URL: {endpoint!r}: {error}") from error
        if url.scheme != "http" or not url.hostname:
            raise InputError(f"metadata endpoint must be an http:// URL, got {endpoint!r}")
        self._host = url.netloc.rpartition("@")[2]
        self._prefix = url.path.rstrip("/")
        self._woken, self._wake = socket.socketpair()

    def stop(self) -> None:
        """Break off what goes on, and whatever is begun after that."""
        with suppress(OSError):
            self._wake.send(b"x")

    def close(self) -> None:
        self._woken.close()
        self._wake.close()

    def sleep_until(self, at_s: float) -> None:
        """Wait until then (monotonic).

        Raises:
            Stopped: see :meth:`stop`.
        """
        with suppress(TimeoutError):
            self._ready(None, 0, at_s)

    def exchange(self, request: Request) -> Outcome:
        """Make the request, and take whatever comes of it.

        Raises:
            Stopped: see :meth:`stop`.
        """
        sent = _moment()
        try:
            status, headers, body = self._answer(request, sent.now_s + request.timeout_s)
        except TimeoutError:
            return Failure(why="no answer in time", timed_out=True, sent=sent, received=_moment())
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            return Failure(why=why, sent=sent, received=_moment())
        return Answer(status=status, headers=headers, body=body, sent=sent, received=_moment())

    def _answer(self, request: Request, deadline_s: float) -> tuple[int, dict[str, str], bytes]:
        with self._connected(deadline_s) as sock:
            self._send(sock, self._head(request), deadline_s)
            data = b""
            while True:
                self._ready(sock, select.POLLIN, deadline_s)
                part = sock.recv(65536)
                data += part
                if len(data) > _LARGEST_ANSWER_BYTES:
                    raise ValueError(f"an answer longer than {_LARGEST_ANSWER_BYTES} bytes")
                found = _parsed(data, request.method, ended=not part)
                if found is not None:
                    return found

    def _connected(self, deadline_s: float) -> socket.socket:
        # Numbers are not looked up; a name is, without a bound of ours.
        family, kind, _, _, address = socket.getaddrinfo(
            *self._address, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
        try:
            code = sock.connect_ex(address)
            if code == errno.EINPROGRESS:
                self._ready(sock, select.POLLOUT, deadline_s)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        return sock

    def _head(self, request: Request) -> bytes:
        lines = [f"{request.method} {self._prefix}{request.path} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines += ["Accept-Encoding: identity", "Connection: close"]
        if request.method != "GET":
            lines.append("Content-Length: 0")
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    def _send(self, sock: socket.socket, data: bytes, deadline_s: float) -> None:
        while data:
            self._ready(sock, select.POLLOUT, deadline_s)
            data = data[sock.send(data) :]

    def _ready(self, sock: socket.socket | None, events: int, deadline_s: float) -> None:
        """Wait for the socket; for nothing but the time when there is none.

        Raises:
            TimeoutError: it is not ready at the deadline.
            Stopped: see :meth:`stop`.
        """
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if sock is not None:
            poll.register(sock, events)
        ready = {found for found, _ in poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)}
        if self._woken.fileno() in ready:
            raise Stopped
        if not ready:
            raise TimeoutError


def _parsed(data: bytes, method: str, *, ended: bool) -> tuple[int, dict[str, str], bytes] | None:
    """Status, headers and body; None while there is more to come.

    Raises:
        HTTPException, ValueError: it is no HTTP, or ended too soon.
    """
    if b"\r\n\r\n" not in data:
        if ended:
            raise http.client.RemoteDisconnected(f"after {len(data)} bytes, within the head")
        return None
    response = http.client.HTTPResponse(cast(Any, _Sock(data)), method=method)
    response.begin()
    if response.length is None and not response.chunked and not ended:
        return None
    try:
        body = response.read()
    except http.client.IncompleteRead:
        if ended:
            raise
        return None
    headers = {name.lower(): value for name, value in response.getheaders()}
    return response.status, headers, body


class _Sock:
    """What HTTPResponse takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def _moment() -> Moment:
    return Moment(now_s=time.monotonic(), wall_s=time.time())
