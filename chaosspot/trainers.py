"""The plug-in contract: how any trainer is launched and read, and what it promises.

A description is a TOML file. Paths in it may be relative to the folder that holds ``faults/``,
``suites/`` and ``fixtures/``. These placeholders are filled in commands and environment values:

=================  =============================================================
``{python}``       the interpreter that runs the harness; in an image, ``python3``
``{content}``      the folder of ``faults/``, ``suites/`` and ``fixtures/``
``{coordinator}``  ``HOST:PORT`` for the coordinator to listen at
``{steps}``        the step to stop at
``{{`` ``}}``      a brace
=================  =============================================================
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from chaosspot import content, toml
from chaosspot.toml import FileError, Value

__all__ = [
    "Coordinator",
    "Final",
    "InObjectStore",
    "Limit",
    "Patterns",
    "Promises",
    "Sick",
    "Timeouts",
    "Trainer",
    "load",
]

Positive = Annotated[float, Meta(gt=0.0)]

# What a trainer inherits from the harness's own environment; all else it must name.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


class Promises(Value, frozen=True, kw_only=True):
    """What a trainer vouches for. What it does not promise is measured, not judged.

    ``snapshot_every_steps`` bounds rework, with one more per lost node for the step in flight.
    With ``peers_hold_state`` only the steps in flight count while any worker survives.
    ``rejoins``: a node that is new or was paused takes part again within ``timeouts.start_s``.
    ``loss_within``: how far the loss may differ from that of undisturbed runs, as a share of it,
    beyond what those differ from each other. ``straggler_factor``, ``stuck_s``, ``unheard_s``: how
    long no node is slow, or half alive (:mod:`chaosspot.oracles.gray`).
    """

    exact: Literal["any-world", "same-world", "none"] = "none"
    samples: Literal["exactly-once", "at-least-once", "none"] = "none"
    snapshot_every_steps: Annotated[int, Meta(ge=1)] | None = None
    peers_hold_state: bool = False
    drains_on_notice: bool = False
    rejoins: bool = False
    recovery_s: Positive | None = None
    catch_up_s: Positive | None = None
    loss_within: Positive | None = None
    straggler_factor: Annotated[float, Meta(ge=1.0)] | None = None
    stuck_s: Positive | None = None
    unheard_s: Positive | None = None


class Timeouts(Value, frozen=True, kw_only=True):
    """Limits in seconds: to the first commit of every worker, between commits, in all."""

    start_s: Positive = 120.0
    stall_s: Positive = 60.0
    run_s: Positive = 900.0


class Coordinator(Value, frozen=True, kw_only=True):
    """What the reserved coordinator node runs (Lighthouse, rendezvous, parameter server)."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]


class Final(Value, frozen=True, kw_only=True):
    """How a job ends by itself: after step ``at_step``, with ``checkpoint`` in its store.

    The attack then goes on to the end, and the arrays of the checkpoint are compared with those of
    undisturbed runs: bit for bit where exactness is promised, else by relative distance (L2 norm
    of the difference over that of the undisturbed), at most ``within``; without it the distance is
    measured, not judged. ``ignore`` holds patterns of names, such as ``*.saved_at``, of what may
    differ.
    """

    at_step: Annotated[int, Meta(ge=1)]
    checkpoint: Annotated[str, Meta(min_length=1)]
    within: Positive | None = None
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        path = PurePosixPath(self.checkpoint)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(
                f"checkpoint = {self.checkpoint!r} is no path within the store (CHAOSSPOT_STORE)"
            )


class InObjectStore(Value, frozen=True, kw_only=True):
    """A trainer that takes ``CHAOSSPOT_STORE = s3://BUCKET/PREFIX`` as well as a directory.

    ``complete``: a pattern of the keys that make what lies beside them a snapshot as soon as they
    are there, such as ``step-*/manifest.json``. ``required``: it can do with nothing else.
    """

    required: bool = False
    complete: Annotated[str, Meta(min_length=1)] | None = None


_GROUPS = {"step", "loss", "generation", "world", "source"}


class Patterns(Value, frozen=True, kw_only=True):
    """Regular expressions over a trainer's output, for one that does not call the probe.

    Named groups become the event's fields: ``step`` and, where printed, ``loss``,
    ``generation``, ``world``, ``source``.
    """

    begin: str | None = None
    commit: str | None = None
    restore: str | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            pattern = getattr(self, name)
            try:
                groups = set(re.compile(pattern).groupindex) if pattern is not None else set()
                if groups - _GROUPS:
                    unknown = sorted(groups - _GROUPS)[0]
                    raise ValueError(
                        f"{name} = {pattern!r}: no field {unknown!r}; valid: {sorted(_GROUPS)}"
                    )
                if pattern is not None and "step" not in groups:
                    raise ValueError(f"{name} = {pattern!r} has no group (?P<step>...)")
            except re.error as error:
                raise ValueError(
                    f"{name} = {pattern!r} is no regular expression: {error}"
                ) from error

    def parse(self, line: str) -> dict[str, Any] | None:
        """The event that a line of output means, if any."""
        for event in self.__struct_fields__:
            pattern = getattr(self, event)
            if pattern is not None and (match := re.search(pattern, line)):
                fields = {k: _number(v) for k, v in match.groupdict().items() if v is not None}
                return {"event": event, **fields}
        return None


class Sick(Value, frozen=True, kw_only=True):
    """For a trainer with a planted bug: the finding it must produce, and those that follow."""

    bug: str
    finding: str
    follows: tuple[str, ...] = ()
    healthy: str = "minimal"
    schedule: str = "sudden-kill"


class Limit(Value, frozen=True, kw_only=True):
    """A schedule of the catalogue that a trainer is known not to pass, and the finding why.

    One that cannot be made to it at all, such as the loss of a child it does not have, is limited
    by ``effect``.
    """

    schedule: str
    finding: str
    reason: str


class Trainer(Value, frozen=True, kw_only=True):
    """What is attacked.

    ``max_nodes``: more would each do the same work, over one another's checkpoints. ``restarts``:
    how often a node whose trainer ended with an error starts it again, on the same
    flash, as an agent or an operator would.
    """

    name: str = ""
    title: str = ""
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    ranks_per_node: Annotated[int, Meta(ge=1)] = 1
    min_nodes: Annotated[int, Meta(ge=1)] = 1
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    restarts: Annotated[int, Meta(ge=0)] = 0
    python_path: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    coordinator: Coordinator | None = None
    patterns: Patterns | None = None
    timeouts: Timeouts = Timeouts()
    promises: Promises = Promises()
    final: Final | None = None
    object_store: InObjectStore | None = None
    limit: tuple[Limit, ...] = ()
    sick: Sick | None = None

    def argv(self, command: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
        """A command with its placeholders filled."""
        return tuple(_fill(part, values) for part in command)

    def reads(self) -> list[Path]:
        """The files and folders that its commands name, and those on its path."""
        root = str(content.content_root())
        commands = (self.command, self.coordinator.command if self.coordinator else ())
        parts = [part.replace("{content}", root) for command in commands for part in command]
        named = [Path(part) for part in parts if os.path.isabs(part) and os.path.exists(part)]
        return [*named, *(_resolve(path) for path in self.python_path)]

    def surroundings(self, values: Mapping[str, str]) -> dict[str, str]:
        """The environment that every process of the trainer gets, before what a node adds."""
        inherited = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        paths = [str(_resolve(path)) for path in self.python_path]
        own = {key: _fill(value, values) for key, value in self.environment.items()}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            **own,
        }


def load(name: str) -> Trainer:
    """Read a description by path, or by its name in ``fixtures/trainers`` or ``suites/sick``.

    Raises:
        ContentError: no such file.
        FileError: the file is no description; or it names a path that does not exist.
    """
    path = content.find(name, "fixtures/trainers", "suites/sick")
    trainer = toml.read(path, Trainer)
    for folder in trainer.python_path:
        if not _resolve(folder).is_dir():
            raise FileError(f"{path}: python_path: no directory {folder!r}")
    for command in (trainer.command, trainer.coordinator.command if trainer.coordinator else ()):
        for part in (*command, *trainer.environment.values()):
            _fill(part, _SAMPLE, origin=str(path))
    return replace(trainer, name=path.stem)


def values(*, coordinator: str, steps: int, python: str = sys.executable) -> dict[str, str]:
    """What the placeholders of a description stand for in one run."""
    return {
        "python": python,
        "content": str(content.content_root()),
        "coordinator": coordinator,
        "steps": str(steps),
    }


_SAMPLE = {"python": "", "content": "", "coordinator": "", "steps": ""}


def _fill(text: str, values: Mapping[str, str], *, origin: str = "command") -> str:
    try:
        return text.format_map(values)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        valid = ", ".join(f"{{{key}}}" for key in _SAMPLE)
        raise FileError(
            f"{origin}: placeholder {error} in {text!r}; valid: {valid}, and {{{{ for a brace"
        ) from error


def _resolve(path: str) -> Path:
    return content.content_root() / Path(path).expanduser()


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
