"""The lease of a run: promises to undo, and a guardian that keeps them if the harness dies."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from chaosspot.undo import ending, procfs, state
from chaosspot.undo.journal import Journal
from chaosspot.undo.kinds import Undo

__all__ = ["Lease"]

_GUARDIAN = Path(__file__).with_name("guardian.py")
_ROOT = Path(__file__).parents[2]
_DIES_S = 1.0  # its sockets are closed before it can be waited for
_DISMISS_S = 15.0  # more than the guardian gives itself to end what is left


class Lease:
    """What a run owes to the machine. Methods may be called from any thread.

    ``id`` is also the run's cookie: every process of the run has it as ``CHAOSSPOT_RUN``.
    """

    def __init__(self, *, directory: Path, lock: int) -> None:
        """Not for callers: see :meth:`open`."""
        self.id = directory.name
        self.directory = directory
        self.stuck: tuple[str, ...] = ()  # once closed: what could not be undone
        self._death: str | None = None
        self._pid = os.getpid()
        self._lock = lock
        self._journal = Journal(directory / "undo.jsonl")
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._guardian = _start_guardian(directory, lock, far)

    @classmethod
    def open(cls, run: Path) -> Self:
        """Open a lease for the run with that directory, and start its guardian."""
        myself = procfs.me()
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        owner = state.Owner(
            id=f"{stamp}-{myself.pid}-{secrets.token_hex(4)}",
            pid=myself.pid,
            start_ticks=myself.start_ticks,
            boot=procfs.boot_id(),
            run=str(run.absolute()),
            argv=tuple(sys.argv),
            started_wall_s=now,
        )
        home = state.ready()
        # Complete and locked before it has a name that others look for.
        hidden = home / f".new-{owner.id}"
        hidden.mkdir(mode=0o700)
        lock = state.take_lock(hidden)
        if lock is None:
            raise OSError(f"cannot lock {hidden}")
        try:
            state.write(hidden / "lease.json", owner)
            hidden.rename(home / owner.id)
            return cls(directory=home / owner.id, lock=lock)
        except BaseException:
            shutil.rmtree(home / owner.id, ignore_errors=True)
            shutil.rmtree(hidden, ignore_errors=True)
            os.close(lock)
            raise

    def promise(self, undo: Undo) -> int:
        """Record how to undo what is about to be done; returns a token for :meth:`kept`.

        Raises:
            OSError: it could not be recorded, or the guardian is dead: do not do it.
        """
        if (death := self.death()) is not None:
            raise OSError(death)
        return self._journal.promise(undo)

    def amend(self, token: int, undo: Undo) -> None:
        """Replace a promise by one that knows more."""
        self._journal.amend(token, undo)

    def kept(self, token: int) -> None:
        """What was promised is undone, and that was verified."""
        self._journal.kept(token)

    @property
    def control(self) -> socket.socket:
        """Becomes readable when the guardian dies; only to be waited for."""
        return self._control

    def death(self) -> str | None:
        """What became of the guardian, if it died or failed before it was dismissed.

        Without one a run must end: nothing would be undone if the harness died too.
        """
        if self._death is None and self._lock >= 0 and self._deaf():
            try:
                self._guardian.wait(_DIES_S)
            except subprocess.TimeoutExpired:
                self._guardian.kill()
                self._guardian.wait()
            self._death = self._obituary()
        return self._death

    def _deaf(self) -> bool:
        """Whether the guardian is gone, or has closed its ears, which is no better."""
        try:
            heard = self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self._guardian.poll() is not None
        except OSError:
            return True
        return not heard

    def _obituary(self, why: str = "") -> str:
        code = self._guardian.returncode
        how = f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"code {code}"
        said = ""
        with contextlib.suppress(OSError):
            said = (self.directory / "guardian.log").read_text(errors="replace").strip()[-300:]
        who = f"the guardian of this run (pid {self._guardian.pid}) died"
        return ": ".join(filter(None, (f"{who}, {how}", why, said)))

    def spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], *, channel: int, log: int
    ) -> int:
        """Start a process in a session of its own, as a child of the guardian.

        The guardian is the run's init: what loses its parent comes to it and is ended by it, so
        that nothing escapes by forking twice or by emptying its environment. ``channel`` becomes
        descriptor 0, ``log`` 1 and 2.

        Returns a descriptor to read and close. It gives a line ``{"pid", "start_ticks"}`` or
        ``{"errno"}`` at once, a line ``{"code"}`` when the process has ended and nothing that it
        left lives any more, and then end of file. End of file alone: the guardian is dead.

        Raises:
            OSError: the guardian is dead.
        """
        watch, far = os.pipe2(os.O_CLOEXEC)
        request = json.dumps({"argv": list(argv), "environment": dict(environment)}).encode()
        try:
            socket.send_fds(self._control, [request], [channel, log, far])
        except OSError as error:
            os.close(watch)
            raise OSError(
                error.errno, f"no guardian to start {argv[0]!r}: {error.strerror}"
            ) from error
        finally:
            os.close(far)
        return watch

    def close(self) -> list[str]:
        """Undo what is left, dismiss the guardian, remove the lease.

        Returns what was left: empty if everybody kept their promises. What cannot be undone
        stays in the lease, for the next start to try.
        """
        if self._lock < 0 or os.getpid() != self._pid:
            return []
        self.death()  # while it can be told from a dismissal
        lock, self._lock = self._lock, -1
        left, failed = [], []
        for token, undo in sorted(self._journal.open_promises().items(), reverse=True):
            try:
                if done := undo.heal():
                    left.append(done)
                self._journal.kept(token, done or "")
            except OSError as error:
                failed.append(f"could not undo {undo.describe()}: {error}")
        left += self._dismiss()
        try:
            if taken := ending.end(None, procfs.RUN, self.id):
                left.append(f"killed processes of no node: {', '.join(map(str, taken))}")
        except OSError as error:
            failed.append(str(error))
        self._journal.close()
        if not failed:
            hidden = self.directory.with_name(f".closed-{self.id}")
            self.directory.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
        os.close(lock)
        self.stuck = tuple(failed)
        return left + failed

    def _dismiss(self) -> list[str]:
        """Ask the guardian to end what it still has below it, and to go."""
        left: list[str] = []
        with self._control:
            if self._death is not None:
                return [self._death]
            problem = ""
            try:
                self._control.settimeout(_DISMISS_S)
                self._control.send(b'{"dismiss": true}')
                while answer := self._control.recv(65536):
                    left += msgspec.json.decode(answer, type=list[str])
                self._guardian.wait(_DISMISS_S)
            except (OSError, subprocess.TimeoutExpired) as error:
                problem = f"it did not go when it was dismissed ({error})"
                self._guardian.kill()
                self._guardian.wait()
            if problem or self._guardian.returncode:
                self._death = self._obituary(problem)
                left.append(self._death)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if left := self.close():
            warnings.warn(f"run {self.id} left: {'; '.join(left)}", ResourceWarning, stacklevel=2)


def _start_guardian(directory: Path, lock: int, control: socket.socket) -> subprocess.Popen[bytes]:
    """A process of its own session whose output nobody waits for."""
    libraries = Path(msgspec.__file__).parents[1]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(directory / "guardian.log", "ab"))
        inherited = [control.fileno(), lock]
        with contextlib.suppress(AttributeError, OSError):
            # A copy of the control socket in a forked child of the harness keeps it open; the
            # death of the harness itself cannot be hidden.
            inherited.append(os.pidfd_open(os.getpid()))
            stack.callback(os.close, inherited[-1])
        argv = [sys.executable, "-I", "-S", str(_GUARDIAN), str(directory)]
        argv += [str(_ROOT), str(libraries), *map(str, inherited)]
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            pass_fds=inherited,
            start_new_session=True,
        )
