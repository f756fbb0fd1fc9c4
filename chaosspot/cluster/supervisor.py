"""The supervisor of one node: starts its ranks, sees its whole process tree, and ends it.

Run as a script that imports the standard library only. It is the subreaper of the tree, so that
no descendant escapes by ``setsid``, by forking twice or by losing its parent, and "no child left"
means "tree empty". It is killed last, by ending itself.

Descriptor 0 is a stream socket to the harness, lines of JSON. In comes what to start
(``argv``, ``environments``, ``cwd``), then ``{"grace_s", "scope"}`` to terminate. End of file means
kill: one path for a fault, for the end of a run and for the death of the harness. Out go
``{"ranks"}`` or ``{"errno", "error"}``, ``{"rank", "code"}`` for each, and
``{"empty", "by_itself"}`` at last.

Arguments: the node's name (for people who read ``ps``) and the directory to import from. In a
container, whose first process it is, also the unix socket to the harness and the file that output
goes to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

if __name__ == "__main__":  # the interpreter was told to look nowhere but in the library
    sys.path.append(sys.argv[2])

from chaosspot.undo import procfs
from chaosspot.undo.ending import Pace, become_subreaper, sweep

__all__ = ["Supervisor"]

# When all ranks have ended the job is over and an instance would be shut down. Helpers of a rank
# (loaders, uploaders) get this long to notice that it is gone, as an init system would give them.
LINGER_S = 2.0


class Supervisor:
    """One incarnation of one node."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._input = bytearray()
        self._ranks: dict[int, int] = {}  # pid -> rank, of those that have not ended
        self._started = False
        self._touched = False
        self._lingers = True  # what ranks leave gets LINGER_S; not if told to end by itself
        self._killing = False
        self._deadline: float | None = None
        self._pace = Pace()

    def run(self) -> None:
        """Until the tree is empty."""
        wake, far = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(far, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self._channel, select.POLLIN)
        pause_s = 0.0
        while True:
            ready = {fd for fd, _ in poll.poll(self._wait_ms(pause_s))}
            if wake in ready:
                os.read(wake, 4096)
            # Before reading: what ended before a command arrived ended by itself.
            if self._reap() and (self._started or self._killing):
                self._say({"empty": time.monotonic(), "by_itself": not self._touched})
                return
            if self._channel.fileno() in ready and not self._read():
                poll.unregister(self._channel)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._kill()
            if self._killing:
                pause_s = self._pace.pause_s(sweep())

    def _wait_ms(self, pause_s: float) -> float | None:
        if self._killing:
            return max(1.0, pause_s * 1000)
        if self._deadline is not None:
            return max(0.0, self._deadline - time.monotonic()) * 1000 + 1
        return None

    def _read(self) -> bool:
        """Act on what the harness says; False when it has said the last word."""
        try:
            data = self._channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._touched = True
            self._kill()
            return False
        self._input += data
        *lines, rest = self._input.split(b"\n")
        self._input = rest
        for line in lines:
            self._obey(json.loads(line))
        return True

    def _obey(self, message: dict[str, Any]) -> None:
        if "argv" in message:
            self._start(message)
            return
        self._touched = True
        if message["scope"] == "main":
            for pid in self._ranks:  # not waited for yet: the pid is nobody else's
                os.kill(pid, signal.SIGTERM)
        else:
            self._lingers = False  # all were told, and have the whole grace
            sweep(signal.SIGTERM)
        self._bound(message["grace_s"])

    def _bound(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _kill(self) -> None:
        if self._killing:
            return
        self._killing = True
        with contextlib.suppress(OSError):  # a fork bomb must not starve its killer
            os.setpriority(os.PRIO_PROCESS, 0, -20)

    def _start(self, message: dict[str, Any]) -> None:
        argv = message["argv"]
        ranks = []
        try:
            os.chdir(message["cwd"])
            for rank, environment in enumerate(message["environments"]):
                pid = os.posix_spawn(
                    _find(argv[0], environment),
                    argv,
                    environment,
                    setsid=True,
                    setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
                )
                self._ranks[pid] = rank
                process = procfs.read(pid)  # at worst a zombie: nobody else waits for it
                ranks.append([pid, process.start_ticks if process else 0])
        except OSError as error:
            self._say({"errno": error.errno, "error": error.filename})
            self._kill()
            return
        self._started = True
        self._say({"ranks": ranks})

    def _reap(self) -> bool:
        """Take note of the dead; True when nothing is left of the tree."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid in self._ranks:
                code = os.waitstatus_to_exitcode(status)
                self._say({"rank": self._ranks.pop(pid), "code": code})
                if not self._ranks and self._lingers:
                    self._bound(LINGER_S)

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a dead harness shows as end of file
            self._channel.sendall(json.dumps(message).encode() + b"\n")


def _find(command: str, environment: dict[str, str]) -> str:
    """The file to run, searched as a shell of that environment would."""
    if "/" in command:
        return command
    for directory in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", command)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return command  # so that the error names it


def _called(path: str, log: str) -> socket.socket:
    """The harness, from inside of a container; output goes to its file from now on."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect(path)
    return channel


def main() -> None:
    become_subreaper()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = _called(*sys.argv[3:5]) if len(sys.argv) > 3 else socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    Supervisor(channel).run()
    os._exit(0)  # the harness waits for it: nothing is left to be tidied


if __name__ == "__main__":
    main()
