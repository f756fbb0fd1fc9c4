"""The directory of one attack: made at the start under its final name, kept whatever happens.

``schedule.toml``, ``trainer.toml``, ``history.jsonl``, ``twin.jsonl`` (and ``twin-2.jsonl`` and so
on, ``final.json``, where a description asks for them), ``environment.json``,
``events/`` (as each process wrote them), ``logs/``, ``verdict.json``; and ``store/``, what the
trainer saved, unless the run passed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import sys
import warnings
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import msgspec

from chaosspot import history, schedule, toml
from chaosspot.oracles import Evidence
from chaosspot.oracles.comparison import Comparison
from chaosspot.trainers import Trainer
from chaosspot.undo.state import naming
from chaosspot.verdict import Verdict

__all__ = [
    "LostError",
    "RunError",
    "backend_of",
    "check_present",
    "create",
    "evidence_of",
    "machine",
    "read_verdict",
    "write",
    "write_environment",
]

_OURS = re.compile(r"\d{8}T\d{6}Z-[^/]+")  # what a link that we made says


class RunError(RuntimeError):
    """A run directory cannot be made, written or read."""


class LostError(RuntimeError):
    """The directory of a run was removed while it ran; there is nothing to judge."""


def create(runs: Path, name: str, seed: int) -> Path:
    """Make ``<runs>/<utc>-<name>-<seed>/`` exclusively and point ``latest`` to it.

    A ``latest`` that is not our link is left alone, with a warning.

    Raises:
        RunError: with the path and the reason.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f".{number}" for number in range(2, 1000))):
            path = runs / f"{stamp}-{name}-{seed}{suffix}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            _point(runs / "latest", path.name)
            return path.resolve()
    except OSError as error:
        raise RunError(f"cannot make a run directory in {str(runs)!r}: {error.strerror}") from error
    raise RunError(f"{str(runs)!r} holds a thousand runs named {stamp}-{name}-{seed}")


def check_present(run: Path, error: Exception | None = None) -> None:
    """See that the files of a live run are where they were made.

    Raises:
        LostError: from ``error``, which is then no more than a consequence.
    """
    paths = [run, run / "history.jsonl"]
    if error is None:
        paths.append(run / "events")
    missing = [path for path in paths if not path.exists()]
    if isinstance(error, FileNotFoundError) and run in Path(str(error.filename)).parents:
        missing.append(Path(str(error.filename)))  # it is being removed
    if missing:
        raise LostError(
            f"{str(missing[0])!r} was removed while the trainer ran: there is nothing to judge; "
            "everything is healed"
        ) from error


def write(path: Path, data: bytes) -> None:
    """Write a file so that it is whole or absent, also after a crash.

    Raises:
        OSError: with the path.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_environment(run: Path, backend: str, image: str | None = None) -> None:
    """Record what ran: command line, versions, machine."""
    facts = {
        "argv": sys.argv,
        "backend": backend,
        "image": image,
        "machine": machine(),
        "packages": {
            name: _version(name) for name in ("chaosspot", "torch", "torchft", "numpy", "aiohttp")
        },
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "started": datetime.now(UTC).isoformat(),
    }
    write(run / "environment.json", msgspec.json.format(msgspec.json.encode(facts)))


def backend_of(run: Path) -> tuple[str, str | None]:
    """Where the nodes of a run lived, and of what image.

    Raises:
        RunError: it is not known.
    """
    try:
        facts = msgspec.json.decode((run / "environment.json").read_bytes(), type=dict)
        return str(facts["backend"]), facts.get("image")
    except (OSError, msgspec.DecodeError, KeyError) as error:
        raise RunError(f"{str(run / 'environment.json')!r} cannot be read: {error}") from error


def machine() -> dict[str, str]:
    """What bit-for-bit results depend on besides the program."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
    }


def evidence_of(run: Path) -> Evidence:
    """What the files of a run say, for judging it again without running anything.

    Raises:
        RunError: a file is missing or damaged; the message names it.
    """
    try:
        twin = run / "twin.jsonl"
        records = history.read(run / "history.jsonl")
        return Evidence(
            history=records,
            schedule=toml.read(run / "schedule.toml", schedule.Schedule),
            trainer=toml.read(run / "trainer.toml", Trainer),
            twin=history.read(twin) if twin.is_file() else None,
            twins_agree=not (run / "twin-differs.jsonl").is_file(),
            more_twins=tuple(history.read(path) for path in sorted(run.glob("twin-[0-9].jsonl"))),
            final=msgspec.json.decode(final.read_bytes(), type=Comparison)
            if (final := run / "final.json").is_file()
            else None,
        )
    except OSError as error:
        raise RunError(f"{str(run)!r} is no run: {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{str(run)!r} cannot be judged: {error}") from error


def read_verdict(run: Path) -> Verdict:
    """The verdict that was given when the run ended.

    Raises:
        RunError: there is none, or it is damaged.
    """
    try:
        return msgspec.json.decode((run / "verdict.json").read_bytes(), type=Verdict)
    except OSError as error:
        raise RunError(f"{str(run)!r} has no verdict: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise RunError(f"{str(run / 'verdict.json')!r} is damaged: {error}") from error


def _point(link: Path, target: str) -> None:
    """Let ``link`` lead to ``target``, unless it is something that others made."""
    mine = _OURS.fullmatch(os.readlink(link)) if link.is_symlink() else not os.path.lexists(link)
    draft = link.with_name(f".latest.{os.getpid()}")
    try:
        if not mine:
            raise FileExistsError(errno.EEXIST, "it is no link that chaosspot made")
        draft.unlink(missing_ok=True)
        draft.symlink_to(target)
        draft.replace(link)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        # Without the run's name: said once, however many runs there are.
        text = f"{str(link)!r} is left alone and leads to no new run: {error.strerror}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
