"""The undisturbed twin of an attack, and the cache that spares running it every time."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from chaosspot import content, history, toml
from chaosspot.conductor.pruning import prune, touch
from chaosspot.conductor.rundir import machine
from chaosspot.oracles.lineage import Lineage
from chaosspot.schedule import ClusterSpec
from chaosspot.trainers import Final, Trainer

__all__ = ["Twin", "cache_path", "cached", "code", "differ", "goal", "keep", "reach", "reaches"]


def goal(steps: int) -> int:
    """How far a twin is to run for an attack of ``steps``: a margin lets others share it."""
    return -(-(steps + steps // 4) // 50) * 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Twin:
    """An undisturbed run: its history, and where its final checkpoint would be, if it has one."""

    history: bytes
    checkpoint: Path | None = None


def cache_path(
    trainer: Trainer, cluster: ClusterSpec, number: int = 1, *, image: str | None = None
) -> Path:
    """Where the twin of a trainer on a cluster is kept on this machine; there may be several.

    The name depends on everything the result does: the description, the code it runs, the
    cluster, the processor and the libraries.
    """
    key = hashlib.blake2b(digest_size=12)
    key.update(toml.dumps(trainer).encode())
    key.update(toml.dumps(cluster).encode())
    key.update(msgspec.json.encode(machine(), order="sorted"))
    if image is not None:
        key.update(image.encode())
    for file in code(trainer):
        key.update(str(file).encode() + b"\0" + file.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = f"{trainer.name}-{key.hexdigest()}" + (f"-{number}" if number > 1 else "")
    return Path(base) / "chaosspot" / "twins" / f"{name}.jsonl"


def cached(path: Path, steps: int, final: Final | None = None) -> Twin | None:
    """The kept twin, if it reaches ``steps`` and has the checkpoint that is asked for."""
    checkpoint = _beside(path, final.checkpoint) if final else None
    try:
        data = path.read_bytes()
        if reaches(data, steps) and (checkpoint is None or checkpoint.exists()):
            touch(path)
            return Twin(history=data, checkpoint=checkpoint)
    except (OSError, ValueError):
        pass
    return None


def reach(data: bytes) -> int:
    """How many steps a twin's history goes."""
    return max(_chain(data), default=0)


def reaches(data: bytes, steps: int) -> bool:
    """Whether a twin's history goes as far as ``steps``."""
    return reach(data) >= steps


def differ(one: Twin, other: Twin, *, ignore: Iterable[str] = ()) -> bool:
    """Whether two twins' states differ after any step that both reached, or their checkpoints."""
    left, right = _chain(one.history), _chain(other.history)
    if any(left[step].digest != right[step].digest for step in left.keys() & right.keys()):
        return True
    if one.checkpoint is None or other.checkpoint is None:
        return False
    from chaosspot.conductor.weights import compare  # numpy: not at every start of the command

    found = compare("", one.checkpoint, other.checkpoint, ignore=ignore).difference
    return found is not None and bool(found.unequal or found.only_here or found.only_there)


def _chain(data: bytes) -> dict[int, history.Commit]:
    return Lineage(history.parse(data)).commits


def keep(path: Path, twin: Twin) -> None:
    """Put a twin into the cache; one that cannot be written is only not kept."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if twin.checkpoint is not None:  # first, because the history says that all is there
            _copy(twin.checkpoint, draft)
            _remove(kept := _beside(path, twin.checkpoint.name))
            draft.replace(kept)
        draft.write_bytes(twin.history)
        draft.replace(path)
        prune(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            _remove(draft)


def _beside(path: Path, checkpoint: str) -> Path:
    """Where the checkpoint of the twin at ``path`` is kept: its suffix says how it is read."""
    return path.with_name(f"{path.stem}.{PurePosixPath(checkpoint).name}")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
