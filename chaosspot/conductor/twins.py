"""The undisturbed twin of an attack, and the cache that spares running it every time."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
from pathlib import Path

import msgspec

from chaosspot import content, history, toml
from chaosspot.conductor.rundir import machine
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import ClusterSpec
from chaosspot.trainers import Trainer

__all__ = ["cache_path", "cached", "code", "differ", "goal", "keep", "reaches"]


def goal(steps: int) -> int:
    """How far a twin is to run for an attack of ``steps``: a margin lets others share it."""
    return -(-(steps + steps // 4) // 50) * 50


def cache_path(trainer: Trainer, cluster: ClusterSpec) -> Path:
    """Where the twin of a trainer on a cluster is kept on this machine.

    The name depends on everything the result does: the description, the code it runs, the
    cluster, the processor and the libraries.
    """
    key = hashlib.blake2b(digest_size=12)
    key.update(toml.dumps(trainer).encode())
    key.update(toml.dumps(cluster).encode())
    key.update(msgspec.json.encode(machine(), order="sorted"))
    for file in code(trainer):
        key.update(str(file).encode() + b"\0" + file.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "chaosspot" / "twins" / f"{trainer.name}-{key.hexdigest()}.jsonl"


def cached(path: Path, steps: int) -> bytes | None:
    """The kept twin, if it reaches ``steps``."""
    try:
        data = path.read_bytes()
        return data if reaches(data, steps) else None
    except (OSError, ValueError):
        return None


def reaches(data: bytes, steps: int) -> bool:
    """Whether a twin's history goes as far as ``steps``."""
    return max(_chain(data), default=0) >= steps


def differ(one: bytes, other: bytes) -> bool:
    """Whether two twins' states differ after any step that both reached."""
    left, right = _chain(one), _chain(other)
    return any(left[step].digest != right[step].digest for step in left.keys() & right.keys())


def _chain(data: bytes) -> dict[int, history.Commit]:
    return Lineage(history.parse(data)).commits


def keep(path: Path, data: bytes) -> None:
    """Put a twin into the cache; one that cannot be written is only not kept."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def code(trainer: Trainer) -> list[Path]:
    """The source files that a description leads to: scripts, modules, folders on its path."""
    found: set[Path] = set()
    commands = [trainer.command, trainer.coordinator.command if trainer.coordinator else ()]
    root = content.content_root()
    for command in commands:
        for flag, part in zip(("", *command), command, strict=False):
            path = Path(part.replace("{content}", str(root)))
            if path.is_file():
                found.update((path, *path.parent.glob("*.py")))
            elif flag == "-m" and (spec := _spec(part)) is not None and spec.origin:
                found.update(Path(spec.origin).parent.rglob("*.py"))
    for folder in trainer.python_path:
        found.update((root / folder).rglob("*.py"))
    return sorted(found)


def _spec(module: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
