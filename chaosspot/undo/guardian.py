"""The guardian of one run: its init, and its dead man's switch.

Started by :class:`chaosspot.undo.lease.Lease` as a script in a session of its own. Node
supervisors are its children, and so is whatever loses its parent in the run. When the harness
dies it ends all of that, undoes what the journal holds and leaves a note for the next start.

Arguments: the directory of the lease, two directories to import from, then the descriptors of the
control socket, of the lock and, where there is one, of the harness process.
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
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the interpreter was told to look nowhere but in the library
    sys.path += sys.argv[2:4]

from chaosspot.undo import journal, procfs, state
from chaosspot.undo.ending import Pace, become_subreaper, end, sweep
from chaosspot.undo.procfs import Process
from chaosspot.words import count

__all__ = ["Guardian"]

_END_S = 10.0  # for all processes of the run together; SIGKILL needs milliseconds
_POLL_S = 0.002


class Guardian:
    """The processes of one run, from above."""

    def __init__(self, control: socket.socket, owner: int | None) -> None:
        self._control = control
        self._owner = owner
        self._watches: dict[int, int] = {}  # supervisor -> descriptor that is told of its end
        self._ended: list[tuple[int, int]] = []  # (descriptor, exit code), not told yet

    def serve(self) -> bool:
        """Work until dismissed (True) or until the harness is dead (False)."""
        wake, far = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(far, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        for descriptor in (wake, self._control.fileno(), self._owner):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(_POLL_S * 1000 if self._ended else None)}
            if self._owner in ready:
                return False
            if self._control.fileno() in ready:
                request = self._receive()
                if request is None:
                    return False
                if "dismiss" in request:
                    return True
            if wake in ready:
                os.read(wake, 4096)
            self._reap()

    def end_all(self) -> set[Process]:
        """Kill every process of the run; returns those that lived.

        Raises:
            OSError: some live on after SIGKILL.
        """
        deadline = time.monotonic() + _END_S
        taken: set[Process] = set()
        pace = Pace()
        while self._reap():
            hit = sweep()
            taken |= {process._replace(parent=0) for process in hit}
            if time.monotonic() > deadline:
                pids = sorted(process.pid for process in hit)
                raise OSError(f"still alive {_END_S} s after SIGKILL: pids {pids}")
            time.sleep(pace.pause_s(hit))
        return taken

    def _receive(self) -> dict[str, Any] | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 20, 3)
        except OSError:
            return None
        if not data:
            return None
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # Python 3.11 drops the flag that would do it
        request: dict[str, Any] = json.loads(data)
        if descriptors:
            self._spawn(request, *descriptors)
        return request

    def _spawn(self, request: dict[str, Any], channel: int, log: int, watch: int) -> None:
        argv = request["argv"]
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                request["environment"],
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, channel, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as error:
            _tell(watch, {"errno": error.errno})
            os.close(watch)
        else:
            process = procfs.read(pid)  # at worst a zombie: nobody else waits for it
            self._watches[pid] = watch
            _tell(watch, {"pid": pid, "start_ticks": process.start_ticks if process else 0})
        finally:
            os.close(channel)
            os.close(log)

    def _reap(self) -> bool:
        """Take note of the dead; True while a descendant lives."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._tell_ended()
                return False
            if pid == 0:
                break
            if pid in self._watches:
                self._ended.append((self._watches.pop(pid), os.waitstatus_to_exitcode(status)))
        if self._ended:
            # A child that this process did not start has lost its supervisor, and its node.
            sweep(spare=frozenset(self._watches))
            if set(procfs.children(os.getpid())) <= set(self._watches):
                self._tell_ended()
        return True

    def _tell_ended(self) -> None:
        for watch, code in self._ended:
            _tell(watch, {"code": code})
            os.close(watch)
        self._ended.clear()


def rescue(guardian: Guardian, directory: Path) -> state.Rescue:
    """Undo everything that a dead harness left."""
    healed: list[str] = []
    problems: list[str] = []
    try:
        if taken := guardian.end_all():  # first, because it is fast and leaves nothing out
            healed.append(f"killed {count(len(taken), 'process', 'processes')}")
    except OSError as error:
        problems.append(str(error))
    promised, broken = journal.read(directory / "undo.jsonl")
    done, failed = journal.heal(promised, journal.Journal(directory / "undo.jsonl"))
    try:
        if pids := end(None, procfs.RUN, directory.name):
            done.append(f"killed processes of no node: {', '.join(map(str, pids))}")
    except OSError as error:
        failed.append(str(error))
    return state.Rescue(healed=(*healed, *done), problems=(*problems, *broken, *failed))


def main() -> None:
    directory = Path(sys.argv[1])
    descriptors = [int(text) for text in sys.argv[4:]]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # above all the lock: supervisors must not hold it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    become_subreaper()
    control = socket.socket(fileno=descriptors[0])
    guardian = Guardian(control, descriptors[2] if len(descriptors) > 2 else None)
    if not guardian.serve():
        state.write(directory / "healed.json", rescue(guardian, directory))
        return
    try:
        taken = sorted(process.pid for process in guardian.end_all())
        left = [f"killed processes of no node: {', '.join(map(str, taken))}"] if taken else []
    except OSError as error:
        left = [str(error)]
    if left:
        control.send(json.dumps(left).encode())


def _tell(watch: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the harness has stopped listening
        os.write(watch, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
