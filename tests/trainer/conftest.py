"""Real trainer processes on loopback, driven and read by tests through one small class."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

# A model of about 20,000 parameters: a step takes some 20 ms, a process about 3 s to start.
TINY = (
    "--width", "32", "--layers", "1", "--heads", "2", "--seq-len", "16", "--micro-batch", "1",
    "--micro-shards", "4", "--snapshot-every", "2",
)  # fmt: skip

PATIENCE_S = 90.0  # a start takes its time on a machine that is busy; only a hang takes longer

Event = dict[str, Any]


class Cluster:
    """A coordinator and its workers; every wait has a deadline and shows the logs when it ends."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data.bin"
        self.data.write_bytes(bytes(range(256)) * 64)
        self.store = root / "store"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._lives: dict[str, int] = {}
        self._positions: dict[Path, int] = {}
        self._events: list[Event] = []
        (root / "events").mkdir()
        self._lighthouse, self.url = _lighthouse("127.0.0.1:0")

    def kill_lighthouse(self) -> None:
        """SIGKILL the coordinator."""
        self._lighthouse.kill()
        self._lighthouse.wait(10)
        assert self._lighthouse.stdout
        self._lighthouse.stdout.close()

    def restart_lighthouse(self) -> None:
        """Start another coordinator at the address of the first; it knows nothing."""
        self._lighthouse, self.url = _lighthouse(self.url.removeprefix("http://"))

    def start(
        self,
        node: str,
        *options: str,
        steps: int,
        store: Path | None = None,
        flash: Path | None = None,
        alone: bool = False,
        imds: str = "",
        points: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start one worker as a new incarnation of ``node``; an empty flash unless given."""
        life = self._lives[node] = self._lives.get(node, -1) + 1
        settings = {
            "CHAOSSPOT_EVENTS": str(self.root / "events"),
            "CHAOSSPOT_NODE": node,
            "CHAOSSPOT_INCARNATION": str(life),
            "CHAOSSPOT_FLASH": str(flash or self.root / f"flash-{node}-{life}"),
            "CHAOSSPOT_STORE": str(store or self.store),
            "TORCHFT_LIGHTHOUSE": "" if alone else self.url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": imds,
            "CHAOSSPOT_POINTS": str(points or ""),
            "CHAOSSPOT_CONTROL": str(points / "control") if points else "",
        }
        command = [sys.executable, "-m", "chaosspot.trainer", *TINY, "--data", str(self.data)]
        with open(self.root / f"{node}.{life}.log", "ab") as log:
            self.workers[node] = subprocess.Popen(
                [*command, "--steps", str(steps), *options],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
            )
        return self.workers[node]

    def kill(self, *nodes: str) -> float:
        """SIGKILL them all, then reap; the monotonic time of the first."""
        at = time.monotonic()
        for node in nodes:
            self.workers[node].kill()
        for node in nodes:
            self.workers[node].wait(10)
        return at

    def events(self, name: str | None = None, node: str | None = None) -> list[Event]:
        """All whole lines written so far, in order of time."""
        for path in (self.root / "events").glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self._positions.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._positions[path] = self._positions.get(path, 0) + len(whole)
            self._events += [json.loads(line) for line in whole.splitlines()]
        self._events.sort(key=lambda event: float(event["t"]))
        return [
            event
            for event in self._events
            if name in (None, event["event"]) and node in (None, event["node"])
        ]

    def wait(
        self,
        name: str,
        test: Callable[[Event], bool] = lambda event: True,
        *,
        node: str | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> Event:
        """The first event of that name (and node) for which ``test`` holds."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for event in self.events(name, node):
                if test(event):
                    return event
            self.pause()
        raise AssertionError(f"no such {name!r} event in {timeout_s} s\n{self.logs()}")

    @contextmanager
    def held(self, node: str, point: str, *, steps: int) -> Iterator[None]:
        """Start ``node``, and keep it at its first visit of ``point`` until the block ends."""
        points = self.root / f"points-{node}"
        points.mkdir()
        (points / point).touch()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.bind(str(points / "control"))
            control.listen()
            control.settimeout(PATIENCE_S)
            self.start(node, steps=steps, points=points)
            with control.accept()[0]:
                (points / point).unlink()
                yield

    def asking(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until so many ranks have asked the coordinator for the next quorum."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"{self.url}/status", timeout=5) as answer:
                status = answer.read().decode()
            if f"{count}/{count} participants" in status:
                return
            self.pause()
        raise AssertionError(f"{count} ranks do not ask for a quorum:\n{status}\n{self.logs()}")

    def ended(self, node: str, timeout_s: float = PATIENCE_S) -> int:
        """Exit code of a worker that ends by itself."""
        try:
            return self.workers[node].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{node} still runs after {timeout_s} s\n{self.logs()}") from None

    def logs(self) -> str:
        lines = [f"{path.name}: {path.read_text()[-1500:]}" for path in self.root.glob("*.log")]
        return "\n".join(lines)

    @staticmethod
    def pause() -> None:
        """The one place that sleeps: between two looks at the events."""
        time.sleep(0.02)

    def close(self) -> None:
        for process in (*self.workers.values(), self._lighthouse):
            if process.poll() is None:
                process.kill()
            process.wait(10)
        if self._lighthouse.stdout:
            self._lighthouse.stdout.close()

    def assert_one_trajectory(self) -> dict[int, str]:
        """Digest by step. Every commit of a step agrees, samples are whole, attempts distinct."""
        digests: dict[int, str] = {}
        for event in self.events("commit"):
            assert event["samples"] == [1, 1, 1, 1], event
            assert digests.setdefault(event["step"], event["digest"]) == event["digest"], event
            if event["step"] - 1 in digests:
                assert event["parent"] == digests[event["step"] - 1], event
        begins = [
            (event["pid"], event["step"], event["generation"]) for event in self.events("begin")
        ]
        assert len(begins) == len(set(begins)), "an attempt cannot be told from its retry"
        return digests


def _lighthouse(bind: str) -> tuple[subprocess.Popen[bytes], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "chaosspot.trainer.lighthouse", "--bind", bind],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    line = process.stdout.readline().decode() if ready else ""
    found = re.search(r"http://\S+", line)
    assert found, f"no address from the lighthouse: {line!r}"
    return process, found[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Digests of steps 1..600 of a single rank that nothing happened to."""
    alone = Cluster(tmp_path_factory.mktemp("undisturbed"))
    try:
        alone.start("alone", "--snapshot-every", "1000", steps=600, alone=True)
        assert alone.ended("alone", 240) == 0, alone.logs()
        return alone.assert_one_trajectory()
    finally:
        alone.close()


class Imds(ThreadingHTTPServer):
    """IMDSv2 with a list of misbehaviours, one for each of the next requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ImdsHandler)
        self.tokens: set[str] = set()
        self.notice: bytes | None = None
        self.next: list[Callable[[ImdsHandler], None]] = []
        self.requests: list[str] = []
        self.stop = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class ImdsHandler(BaseHTTPRequestHandler):
    server: Imds

    def do_PUT(self) -> None:
        if self.misbehaves():
            return
        ttl = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        if self.path != "/latest/api/token" or not 1 <= int(ttl) <= 21600:
            return self.answer(400)
        token = f"token-{len(self.server.requests)}"
        self.server.tokens.add(token)
        self.answer(200, token.encode())

    def do_GET(self) -> None:
        if self.misbehaves():
            return
        if self.headers["X-aws-ec2-metadata-token"] not in self.server.tokens:
            return self.answer(401, b"<html>401</html>")
        if self.path != "/latest/meta-data/spot/instance-action" or not self.server.notice:
            return self.answer(404, b"<html>404 - Not Found</html>")
        self.answer(200, self.server.notice)

    def misbehaves(self) -> bool:
        self.server.requests.append(self.command)
        if not self.server.next:
            return False
        self.server.next.pop(0)(self)
        return True

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def imds() -> Iterator[Imds]:
    with Imds() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.stop.set()
        server.shutdown()
        thread.join()
