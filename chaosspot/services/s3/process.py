"""moto's S3 in a process of its own: started, awaited, asked whether it lives, ended."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

__all__ = ["Moto"]

_PROGRAM = Path(__file__).with_name("run_moto.py")
_TAIL_BYTES = 4096
_TAIL_LINES = 15


class Moto:
    """Use it with ``async with`` on an asyncio loop; leaving it ends the process, verified.

    The process knows nothing of the user's AWS settings, and ends with this one even when this
    one is SIGKILLed. Its state is its own: two of them share nothing.

    Raises:
        OSError: entering: it did not serve within ``within_s`` seconds; with what it said last.
    """

    def __init__(self, *, within_s: float = 60.0, environ: Mapping[str, str] = os.environ) -> None:
        self.port = 0
        self._within_s = within_s
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process, 0 when there is none."""
        return self._process.pid if self._process else 0

    async def __aenter__(self) -> Self:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(_PROGRAM), str(os.getpid())),
                env=_without_settings(self._environ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is not for it
            )
            assert self._process.stdout is not None
            try:
                async with asyncio.timeout(self._within_s):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                raise OSError(self._because(f"nothing in {self._within_s:g} s")) from None
            if not line:
                code = await self._process.wait()
                raise OSError(self._because(f"exit code {code}"))
            self.port = int(line)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()

    def check(self) -> None:
        """Raise OSError, with what it said last, when the process has ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise OSError(self._because(f"it ended with {self._process.returncode}"))

    async def _end(self) -> None:
        if self._process is not None:
            with anyio.CancelScope(shield=True):
                if self._process.returncode is None:
                    self._process.kill()  # nothing of its state is wanted any more
                await self._process.wait()
        self._log.close()

    def _because(self, why: str) -> str:
        size = os.fstat(self._log.fileno()).st_size
        # pread, as the offset is the process's, too
        tail = os.pread(self._log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        lines = tail.decode(errors="replace").splitlines()[-_TAIL_LINES:]
        said = "\n".join(["its last lines:", *lines]) if lines else "it said nothing"
        return f"the object store (moto) does not serve: {why}; {said}"


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would change what moto or botocore do."""
    foreign = ("AWS_", "MOTO_", "S3_", "BOTO", "FLASK_", "WERKZEUG_")
    plain = {
        name: value
        for name, value in environ.items()
        if not name.startswith(foreign) and not name.lower().endswith("_proxy")
    }
    nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    return {**plain, **nowhere, "MOTO_DISABLE_GLOBAL_CORS": "true"}
