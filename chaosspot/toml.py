"""TOML files as frozen values, and errors that a person can act on."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import tomli_w

__all__ = ["FileError", "Value", "convert", "dumps", "loads", "read"]

T = TypeVar("T", bound="Value")


class FileError(ValueError):
    """A TOML file is missing, is not TOML or does not say what it may say."""


class Value(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of everything that is read from TOML: frozen, keyword-only, no unknown keys."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be finite, not {value!r}")


def read(path: Path, into: type[T]) -> T:
    """Read one file.

    Raises:
        FileError: with the path, the offending key or value, and the nearest valid key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise FileError(f"cannot read {str(path)!r}: {reason}") from error
    return loads(text, into, origin=str(path))


def loads(text: str, into: type[T], *, origin: str = "<text>") -> T:
    """Parse TOML text into ``into``; ``origin`` is named in errors (see :func:`read`)."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{origin}: not TOML: {error}") from error
    return convert(data, into, origin=origin)


def convert(data: dict[str, Any], into: type[T], *, origin: str) -> T:
    """Turn parsed TOML into ``into``; ``origin`` is named in errors (see :func:`read`)."""
    try:
        return msgspec.convert(data, into)
    except msgspec.ValidationError as error:
        raise FileError(f"{origin}: {_explain(str(error), data, into)}") from error


def dumps(value: Value) -> str:
    """TOML text that :func:`loads` turns back into an equal value."""
    return tomli_w.dumps(cast("dict[str, Any]", msgspec.to_builtins(value)), indent=2)


def _explain(message: str, data: Any, into: type[Value]) -> str:
    match = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*)`)?", message, re.DOTALL)
    what, path = (match[1], match[2] or "") if match else (message, "")
    value, kind = _walk(data, into, path)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what)
    if unknown and kind:
        valid = list(kind.__struct_encode_fields__)
        if tag := kind.__struct_config__.tag_field:
            valid.append(tag)
        near = difflib.get_close_matches(unknown[1], valid, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(sorted(valid))}"
        where = f" in {path!r}" if path else ""
        return f"unknown key {unknown[1]!r}{where}; {hint}"
    if isinstance(value, dict):
        return f"{path or 'file'}: {what}"
    return f"{path} = {value!r}: {what}"


def _walk(data: Any, kind: Any, path: str) -> tuple[Any, type[Value] | None]:
    """The value at a msgspec error path such as ``fault[0].on``, and the type expected there."""
    for part in re.findall(r"[^.\[\]]+|\[\d+\]|\[\.\.\.\]", path):
        if part.startswith("["):
            data = data[int(part[1:-1])] if part != "[...]" else next(iter(data.values()))
            continue
        kind = _struct(kind, data)
        kind = typing.get_type_hints(kind).get(part, Any) if kind else Any
        data = data.get(part) if isinstance(data, dict) else None
    return data, _struct(kind, data)


def _struct(kind: Any, data: Any) -> type[Value] | None:
    """The one struct inside an annotation: through unions, tuples and ``Annotated``."""
    if isinstance(kind, type) and issubclass(kind, Value):
        return kind
    inner = [k for arg in typing.get_args(kind) if (k := _struct(arg, data))]
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and isinstance(data, dict):
        inner = [k for k in inner if k.__struct_config__.tag == data.get("kind")] or inner
    return next(iter(inner), None)
