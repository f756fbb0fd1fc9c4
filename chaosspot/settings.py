"""What is used when a command does not say: command line > environment > file > default.

The file is ``chaosspot.toml``, or ``[tool.chaosspot]`` in ``pyproject.toml``, in the working
directory or the nearest one above it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from chaosspot import toml
from chaosspot.toml import FileError, Value

__all__ = ["Setting", "resolve"]


class _File(Value, frozen=True, kw_only=True):
    """What a file may say."""

    trainer: str | UnsetType = UNSET
    cluster: str | UnsetType = UNSET
    image: str | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    runs: str | UnsetType = UNSET


_DEFAULTS: dict[str, Any] = {
    "trainer": "reference",
    "cluster": "processes",
    "image": None,
    "seed": None,
    "runs": "runs",
}


class Setting(Struct, frozen=True, kw_only=True):
    """A value and where it comes from."""

    value: Any
    origin: str


def resolve(
    given: Mapping[str, Any], *, environ: Mapping[str, str], folder: Path
) -> dict[str, Setting]:
    """Every setting with its origin.

    Args:
        given: what the command line says; None where it says nothing.
        environ: ``CHAOSSPOT_TRAINER`` and so on.
        folder: where the search for a file begins.

    Raises:
        FileError: the file cannot be read or says something it may not; or a variable does.
    """
    path, found = _find(folder)
    settings = {}
    for name, default in _DEFAULTS.items():
        variable = f"CHAOSSPOT_{name.upper()}"
        in_file = getattr(found, name)
        if given.get(name) is not None:
            settings[name] = Setting(value=given[name], origin="command line")
        elif environ.get(variable):
            value = _number(variable, environ[variable]) if name == "seed" else environ[variable]
            settings[name] = Setting(value=value, origin=variable)
        elif in_file is not UNSET:
            settings[name] = Setting(value=in_file, origin=str(path))
        else:
            settings[name] = Setting(value=default, origin="default")
    return settings


def _find(folder: Path) -> tuple[Path | None, _File]:
    for place in (folder, *folder.parents):
        own, project = place / "chaosspot.toml", place / "pyproject.toml"
        if own.is_file():
            return own, toml.read(own, _File)
        if project.is_file():
            table = _tool_table(project)
            if table is not None:
                return project, toml.convert(table, _File, origin=f"{project}: tool.chaosspot")
    return None, _File()


def _tool_table(project: Path) -> dict[str, Any] | None:
    try:
        table = tomllib.loads(project.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{project}: {error}") from error
    found: dict[str, Any] | None = table.get("chaosspot")
    return found


def _number(variable: str, text: str) -> int:
    if not text.isdecimal():
        raise FileError(f"{variable}={text!r} is no whole number from 0 up")
    return int(text)
