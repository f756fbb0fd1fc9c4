"""A Docker daemon of a test's own, in a network of its own: it may be killed, filled and hemmed in.

All that it has of networks (bridges, routes, rules) is in its network namespace, so that neither
another daemon nor this machine notices.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil
from commands import within

from chaosspot.undo import docker

ANSWERS_S = 120.0
ENDS_S = 60.0


class OwnDaemon:
    """Started by :meth:`start`; ``data`` is where it keeps everything, under ``place`` at first."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="chaosspot-own-", dir="/tmp"))  # sockets: short
        self.data = self.place / "data"
        self.socket = self.place / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self.socket}"}

    def start(self, before: str = "") -> None:
        """Start it and wait until it answers; ``before`` is done in its network, by a shell."""
        argv = ["dockerd", "--host", f"unix://{self.socket}", "--bridge", "none"]
        argv += ["--data-root", str(self.data), "--exec-root", str(self.place / "exec")]
        argv += ["--pidfile", str(self.place / "pid")]
        text = f'ip link set lo up; {before}\nexec "$@"'
        (self.place / "pid").unlink(missing_ok=True)
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "sh", "-e", "-c", text, "sh", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert within(ANSWERS_S, self._answers), self.said()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        return docker.reachable(str(self.socket))

    def kill(self) -> None:
        """SIGKILL; its containers live on, as after any crash of a daemon."""
        assert self._process is not None
        ours = [p for p in self._started() if p.name() == "containerd"]
        self._process.kill()
        self._process.wait()
        for process in ours:
            process.kill()
        # A zombie would be taken for one that works, until somebody has reaped it.
        (self.place / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it in good order, with all that it started, and remove what it kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(ENDS_S)
        for process in self._started():
            process.kill()
        psutil.wait_procs(self._started(), ENDS_S)
        for point in sorted(self._mounts(), reverse=True):
            subprocess.run(["umount", "--lazy", point], check=True)
        shutil.rmtree(self.place)

    def client(self, *argv: str) -> str:
        done = subprocess.run(
            ["docker", *argv],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=True,
        )
        return done.stdout.strip()

    def everything(self) -> list[str]:
        """Its containers, networks but for its own two, and volumes, by name."""
        lists: Sequence[Sequence[str]] = (
            ("ps", "-a", "--format", "{{.Names}}"),
            ("network", "ls", "--filter", "type=custom", "--format", "{{.Name}}"),
            ("volume", "ls", "--format", "{{.Name}}"),
        )
        return [name for each in lists for name in self.client(*each).split()]

    def said(self) -> str:
        return (self.place / "log").read_text(errors="replace")[-2000:]

    def _started(self) -> list[psutil.Process]:
        """What names its folder on its command line: its containerd, and who holds containers."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.place) in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4] for line in lines]
        return [point for point in points if point.startswith(f"{self.place}/")]
