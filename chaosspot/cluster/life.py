"""One incarnation of a node, as the harness sees it: its supervisor and what it reports."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from chaosspot.cluster import Gone, Launch
from chaosspot.cluster.census import Census
from chaosspot.cluster.flash import Flash
from chaosspot.cluster.grip import Grip
from chaosspot.cluster.throttle import Throttle
from chaosspot.schedule import Node
from chaosspot.undo import Lease, ProcessTree, procfs
from chaosspot.undo.procfs import Process

__all__ = ["Life", "lines"]

T = TypeVar("T")

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_ROOT = Path(__file__).parents[2]
_SWEPT_S = 5.0  # how long the guardian may take to end what a dead supervisor left


class Life:
    """From the promise to undo it until the whole tree is verified gone.

    ``started``, ``empty`` (the tree was verified gone) and ``ended`` (so is its flash, unless
    kept) are set in this order. ``problem`` says why it did not start or could not be verified.
    Cancelling does not reach :meth:`run`: once :meth:`kill` was called it ends.
    """

    def __init__(
        self,
        *,
        node: Node,
        launch: Launch,
        number: int,
        flash: Flash,
        lease: Lease,
        census: Census,
        threads: anyio.CapacityLimiter,
    ) -> None:
        self.node = node
        self.started = anyio.Event()
        self.empty = anyio.Event()
        self.ended = anyio.Event()
        self.problem: OSError | None = None
        self.gone: Gone | None = None
        self.keep_flash = False
        self._scope = anyio.CancelScope(shield=True)
        self._launch = launch
        self._number = number
        self._flash = flash
        self._lease = lease
        self._census = census
        self._threads = threads
        self._tree = ProcessTree(
            name=node.name, cookie=f"{lease.id}/{node.name}.{number}", boot=procfs.boot_id()
        )
        self._channel, self._far = socket.socketpair()
        self._channel.setblocking(False)
        self._known: list[Process] = []  # by recorded identity, the supervisor first
        self._code: int | None = None
        self._failed: int | None = None  # exit code of the first rank that did not end with 0
        self._ended_ranks = 0
        self._killed = False
        self._grip: Grip | None = None  # once started
        self._throttle: Throttle | None = None

    def kill(self) -> None:
        """End of file is the supervisor's order to kill; valid at any moment."""
        self._killed = True
        with contextlib.suppress(OSError):  # it has ended already
            self._channel.shutdown(socket.SHUT_WR)

    def terminate(self, grace_s: float, scope: Literal["tree", "main"]) -> None:
        """Once started: SIGTERM to the tree or its ranks now, SIGKILL to what is left later."""
        with contextlib.suppress(OSError):
            message = {"grace_s": grace_s, "scope": scope}
            self._channel.send(json.dumps(message).encode() + b"\n")

    async def pause(self) -> float | None:
        """Stop the whole tree; when it was seen stopped, None if it does not live."""
        return await self._thread(self._grip.pause) if self._grip else None

    async def resume(self) -> None:
        """Take one pause back."""
        if self._grip:
            await self._thread(self._grip.resume)

    async def kill_child(self) -> float | None:
        """Kill the youngest leaf below the ranks; when it was seen gone, None without one."""
        return await self._thread(self._grip.kill_child) if self._grip else None

    async def slow_flash(self, write_bytes_per_s: int) -> float | None:
        """Limit how fast the tree writes; since when, None if it does not live."""
        slow = self._throttle.slow if self._throttle else lambda _: None
        return await self._thread(lambda: slow(write_bytes_per_s))

    async def mend_flash(self) -> int:
        """Take the limit away; how many bytes were written under it."""
        return await self._thread(self._throttle.mend) if self._throttle else 0

    async def drop_flash(self) -> None:
        """Remove the flash that an end by itself kept, unless a later life has it."""
        await self._thread(lambda: self._flash.remove(life=self._number))

    async def force(self) -> None:
        """Kill the tree without its supervisor's help; errors end up in ``problem``."""
        try:
            await self._thread(self._tree.heal)
        except OSError as error:
            self.problem = error

    def abandon(self) -> None:
        """Stop following a tree that nothing ends; its promise stays open in the lease."""
        if self.problem is None:
            self.problem = OSError(f"{self.node.name} does not end: {self._tree.describe()}")
        self._scope.cancel()

    async def run(self) -> None:
        """Start the tree, follow it and see it gone."""
        with self._scope:
            try:
                size_bytes = self.node.flash_bytes
                await self._thread(
                    lambda: self._flash.make(life=self._number, size_bytes=size_bytes)
                )
                token = await self._thread(lambda: self._lease.promise(self._tree))
                last: dict[str, Any] = {}
                try:
                    last = await self._follow(token)
                    if not (self.started.is_set() or self._killed or self.problem):
                        log = self._launch.log
                        raise OSError(f"{self.node.name}: its supervisor died at once; see {log}")
                except OSError as error:
                    self.problem = error
                    self.kill()
                verified = await self._verify(last)
                self.empty.set()
                if self._grip:
                    await self._thread(self._grip.let_go)
                if self._throttle:
                    await self._thread(self._throttle.let_go)
                if not (self.keep_flash or (self._launch.keep_flash and verified.by_itself)):
                    await self.drop_flash()
                await self._thread(lambda: self._lease.kept(token))
                self.gone = verified
            except OSError as error:
                self.problem = error
            finally:
                self._channel.close()
                self._far.close()
                self.started.set()
                self.empty.set()
                self.ended.set()

    async def _follow(self, token: int) -> dict[str, Any]:
        """Until the supervisor has ended; returns its last report, empty if it had none."""
        watch = self._spawn()
        last: dict[str, Any] = {}
        try:
            guardian = lines(watch)
            born = await anext(guardian, {"errno": errno.EOWNERDEAD})
            if "errno" in born:
                code = born["errno"]
                raise OSError(code, f"{self.node.name}: no supervisor: {os.strerror(code)}")
            self._known.append(Process(born["pid"], 0, born["start_ticks"], alive=True))
            self._tree = replace(
                self._tree, supervisor=born["pid"], start_ticks=born["start_ticks"]
            )
            await self._thread(lambda: self._lease.amend(token, self._tree))
            await self._send_launch()
            async for report in lines(self._channel.fileno()):
                last = report
                self._note(report)
            # The guardian tells when nothing is left below a supervisor that was killed.
            with anyio.move_on_after(_SWEPT_S):
                await anext(guardian, None)
        finally:
            os.close(watch)
        return last

    def _spawn(self) -> int:
        cookies = {procfs.RUN: self._lease.id, procfs.TREE: self._tree.cookie}
        argv = [sys.executable, "-I", "-S", str(_SUPERVISOR), self.node.name, str(_ROOT)]
        self._launch.log.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(self._launch.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        try:
            return self._lease.spawn(argv, cookies, channel=self._far.fileno(), log=log)
        finally:
            os.close(log)
            self._far.close()

    async def _send_launch(self) -> None:
        cookies = {procfs.RUN: self._lease.id, procfs.TREE: self._tree.cookie}
        what = {
            "argv": self._launch.argv,
            "environments": [{**env, **cookies} for env in self._launch.environments],
            "cwd": str(Path.cwd()),
        }
        data = memoryview(json.dumps(what).encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # killed before it was told what to start
            while data:
                try:
                    data = data[self._channel.send(data) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._channel)

    def _note(self, report: dict[str, Any]) -> None:
        if "ranks" in report:
            mains = [Process(pid, 0, ticks, alive=True) for pid, ticks in report["ranks"]]
            self._known += mains
            self._grip = self._gripped(mains)
            self._throttle = Throttle(tree=self._tree, flash=self._flash.path, lease=self._lease)
            self.started.set()
        elif "errno" in report:
            code, command = report["errno"], self._launch.argv[0]
            named = f" ({report['error']})" if report["error"] not in (None, command) else ""
            self.problem = OSError(
                code, f"{self.node.name} cannot start {command!r}{named}: {os.strerror(code)}"
            )
        elif "rank" in report:
            self._ended_ranks += 1
            if report["code"] and self._failed is None:
                self._failed = report["code"]

    def _gripped(self, mains: list[Process]) -> Grip:
        return Grip(tree=self._tree, mains=mains, lease=self._lease)

    async def _verify(self, last: dict[str, Any]) -> Gone:
        """See from outside that nothing is left, and end it if something is."""
        t, by_itself = last.get("empty"), last.get("by_itself", False)
        left = await self._census.holders(self._tree.cookie)
        if t is None or left or any(process.is_now() for process in self._known):
            await self._thread(self._tree.heal)
            t = time.monotonic()
        complete = self._ended_ranks == len(self._launch.environments)
        code = self._failed if self._failed is not None else 0 if complete else None
        return Gone(t=t, by_itself=by_itself, code=code)

    async def _thread(self, function: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(function, limiter=self._threads)


async def lines(descriptor: int) -> AsyncIterator[dict[str, Any]]:
    """JSON lines until end of file; a torn last one is dropped."""
    data = b""
    while True:
        await anyio.wait_readable(descriptor)
        try:
            part = os.read(descriptor, 1 << 16)
        except (BlockingIOError, InterruptedError):
            continue
        except ConnectionResetError:
            return
        if not part:
            return
        *lines, data = (data + part).split(b"\n")
        for line in lines:
            yield json.loads(line)
