"""The real toxiproxy-server: where it is, and one of our own for as long as it is needed."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec

from chaosspot.services.proxy.client import BackendError, Client, check_url

__all__ = ["PROGRAM", "URL_VARIABLE", "Real", "find", "running"]

PROGRAM = "toxiproxy-server"
URL_VARIABLE = "CHAOSSPOT_TOXIPROXY_URL"
START_S = 10.0
STOP_S = 3.0
_POLL_S = 0.02
_TELLING_BYTES = 2000


class Real(msgspec.Struct, frozen=True, kw_only=True):
    """Where a real server is to be had: one that runs, or a program to start."""

    url: str | None = None
    program: Path | None = None


def find(environ: Mapping[str, str]) -> Real | None:
    """The server at CHAOSSPOT_TOXIPROXY_URL, else the program on PATH, else None.

    Raises:
        ValueError: what is set is no URL.
    """
    if url := environ.get(URL_VARIABLE):
        check_url(url, URL_VARIABLE)
        return Real(url=url)
    program = shutil.which(PROGRAM, path=environ.get("PATH", os.defpath))
    return Real(program=Path(program)) if program else None


@asynccontextmanager
async def running(
    real: Real,
    *,
    environ: Mapping[str, str],
    log: Path | None = None,
    seed: int = 0,
    timeout_s: float = 10.0,
) -> AsyncIterator[Client]:
    """A client of a real server, which is started and stopped here unless it ran already.

    Args:
        environ: what a started one gets, so that what it is told by can be found in /proc.
        log: where its output goes; nowhere by default.
        seed: what it is started with. Since version 2.9 it takes no notice.
        timeout_s: for each request.

    Raises:
        BackendError: it cannot be started, or nobody answers.
    """
    if real.url is not None:
        async with Client(real.url, timeout_s=timeout_s) as client:
            await client.version()
            yield client
        return
    if real.program is None:
        raise BackendError(f"no {PROGRAM} on PATH, and {URL_VARIABLE} is not set")
    port = _free_port()
    command = [str(real.program), "-host", "127.0.0.1", "-port", str(port), "-seed", str(seed)]
    command.append("-proxy-metrics")  # by which an effect is seen
    process = _started(command, environ, log)
    try:
        async with Client(f"http://127.0.0.1:{port}", timeout_s=timeout_s) as client:
            await _answering(client, process, log)
            yield client
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


def _started(
    command: list[str], environ: Mapping[str, str], log: Path | None
) -> subprocess.Popen[bytes]:
    with open(log or os.devnull, "ab") as output:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environ),
                start_new_session=True,  # Ctrl-C is for us alone
            )
        except OSError as error:
            raise BackendError(f"cannot start {command[0]}: {error.strerror}") from error


async def _answering(client: Client, process: subprocess.Popen[bytes], log: Path | None) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + START_S
    while True:
        if process.poll() is not None:
            raise BackendError(f"{PROGRAM} exited with {process.returncode}{_told(log)}")
        try:
            await client.version()
        except BackendError as error:
            if loop.time() >= end_s:
                why = f"{PROGRAM} does not answer after {START_S:g} s: {error}{_told(log)}"
                raise BackendError(why) from error
        else:
            return
        await asyncio.sleep(_POLL_S)


def _told(log: Path | None) -> str:
    if log is None:
        return ""
    with suppress(OSError):
        return ": " + log.read_bytes()[-_TELLING_BYTES:].decode("utf-8", "replace").strip()
    return ""


async def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it whatever it is doing: a hung one does not heed SIGTERM."""
    process.terminate()
    with anyio.move_on_after(STOP_S):
        while process.poll() is None:  # noqa: ASYNC110 - it has no event
            await anyio.sleep(_POLL_S)
        return
    process.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
