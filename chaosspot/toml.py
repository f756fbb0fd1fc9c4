"""TOML files as frozen values, and errors that a person can act on."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
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
    value, annotation = _walk(data, into, path)
    kind = _struct(annotation, value)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what)
    if unknown and kind:
        valid = list(kind.__struct_encode_fields__)
        if tag := kind.__struct_config__.tag_field:
            valid.append(tag)
        near = _near(unknown[1], valid) or f"; valid: {', '.join(sorted(valid))}"
        where = f" in {path!r}" if path else ""
        return f"unknown key {unknown[1]!r}{where}{near}"
    above, _, key = path.rpartition(".")
    if valid := _literals(annotation) or _tags(_walk(data, into, above)[1], key):
        return f"{path} = {value!r}: valid: {', '.join(valid)}{_near(value, valid)}"
    absent = re.fullmatch(r"Object missing required field `(.*)`", what)
    if absent and (valid := _tags(annotation, absent[1])):
        return f"{path or 'file'}: {what}; valid: {', '.join(valid)}"
    if isinstance(value, dict):
        return f"{path or 'file'}: {what}"
    return f"{path} = {value!r}: {what}"


def _near(given: object, valid: list[str]) -> str:
    near = difflib.get_close_matches(str(given), valid, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _walk(data: Any, kind: Any, path: str) -> tuple[Any, Any]:
    """The value at a msgspec error path such as ``fault[0].on``, and the annotation there.

    An index keeps the annotation of the whole: what is in it is found by what reads it.
    """
    for part in re.findall(r"[^.\[\]]+|\[\d+\]|\[\.\.\.\]", path):
        if part.startswith("["):
            data = data[int(part[1:-1])] if part != "[...]" else next(iter(data.values()))
            continue
        struct = _struct(kind, data)
        kind = typing.get_type_hints(struct).get(part, Any) if struct else Any
        data = data.get(part) if isinstance(data, dict) else None
    return data, kind


def _struct(annotation: Any, data: Any) -> type[Value] | None:
    """The one struct inside an annotation that ``data`` is to be."""
    inner = _structs(annotation)
    if isinstance(data, dict):
        inner = [k for k in inner if k.__struct_config__.tag == data.get("kind")] or inner
    return next(iter(inner), None)


def _structs(annotation: Any) -> list[type[Value]]:
    """The structs inside an annotation: through unions, tuples and ``Annotated``."""
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return [annotation]
    return [kind for part in typing.get_args(annotation) for kind in _structs(part)]


def _tags(annotation: Any, field: str) -> list[str]:
    """What may stand in the field that tells the structs of a union apart."""
    configs = [kind.__struct_config__ for kind in _structs(annotation)]
    return [str(config.tag) for config in configs if config.tag_field == field]


def _literals(annotation: Any) -> list[str]:
    """The values inside an annotation that is a ``Literal``."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return list(map(str, parts))
    return [value for part in parts for value in _literals(part)]
