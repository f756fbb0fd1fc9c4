"""Carries bytes from socket to socket without looking at them, inside the kernel where it can."""

from __future__ import annotations

import errno
import fcntl
import os
import socket

__all__ = ["Carrier"]

_PIPE_BYTES = 1 << 20  # as much as anybody may have
_BUFFER_BYTES = 1 << 18
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class Carrier:
    """A pipe and a buffer, which all links of one loop can share: each call leaves them empty."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._size = _PIPE_BYTES
        self._able = True
        try:
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            self._size = fcntl.fcntl(self._in, fcntl.F_GETPIPE_SZ)

    def close(self) -> None:
        os.close(self._in)
        os.close(self._out)

    def carry(self, source: socket.socket, target: socket.socket) -> tuple[int, bytes]:
        """Once: how much was received, 0 at the end, and what there was no room for.

        Raises:
            BlockingIOError: there is nothing to receive.
            ConnectionError: the source was reset, which is an end; or
            BrokenPipeError: the target is gone.
        """
        if self._able:
            try:
                count = os.splice(source.fileno(), self._in, self._size)
            except OSError as error:
                if error.errno not in _UNABLE:
                    raise
                self._able = False  # not on this kernel
            else:
                return count, self._pour(count, target)
        count = source.recv_into(self._buffer)
        return count, _sent(target, self._buffer[:count])

    def _pour(self, count: int, target: socket.socket) -> bytes:
        """Empty the pipe into the target; what is left is returned."""
        left = count
        try:
            while left:
                left -= os.splice(self._out, target.fileno(), left)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            os.read(self._out, left)
            raise BrokenPipeError(error.errno, str(error)) from error
        return os.read(self._out, left) if left else b""


def _sent(target: socket.socket, data: memoryview) -> bytes:
    if not data:
        return b""
    try:
        return bytes(data[target.send(data) :])
    except (BlockingIOError, InterruptedError):
        return bytes(data)
    except OSError as error:
        raise BrokenPipeError(error.errno, str(error)) from error
