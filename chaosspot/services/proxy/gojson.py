"""JSON by the rules of Go's library, which Toxiproxy's clients meet.

Only the first value counts, keys match in any case, null leaves what was there, and a whole number
is written as one: 10.0, 1e3 and "10" are refused. Python's own library is more lenient.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

import msgspec

from chaosspot.services.proxy.toxics.pipe import INT_MAX
from chaosspot.services.proxy.values import single

__all__ = ["Number", "Object", "Value", "as_object", "decode", "encode", "float32", "get"]

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_KEY = "looking for beginning of object key string"
_NUMERIC = ("int64", "float32")
_SYNTAX = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": _KEY,
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after value",
    "Invalid control character at": "in string literal",
    "Invalid control character": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Invalid \\uXXXX escape": "in \\u hexadecimal character escape",
}


class Number(msgspec.Struct, frozen=True):
    """A number as it is written."""

    text: str


class Object(msgspec.Struct, frozen=True):
    """The pairs of an object, in their order."""

    pairs: list[tuple[str, Any]]


_NAMES: dict[type, str] = {str: "string", bool: "bool", list: "array", Number: "number"}
Value: TypeAlias = "bool | str | Number | Object | list[Any] | None"


def decode(body: bytes) -> Value:
    """The first JSON value in ``body``.

    Raises:
        ValueError: there is none, with the words of Go's library.
    """
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    if not text:
        raise ValueError("EOF")
    try:
        value, _ = _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    except json.JSONDecodeError as error:
        what = error.msg.split(": ")[0]
        if error.pos >= len(text) or what.startswith("Unterminated string"):
            raise ValueError("unexpected EOF") from None
        why = _SYNTAX.get(what, "looking for beginning of value")
        raise ValueError(f"invalid character {text[error.pos]!r} {why}") from None
    found: Value = value
    return found


def as_object(value: Value, kind: str) -> Object:
    """The object that ``value`` is; null is an empty one.

    Raises:
        ValueError: it is something else; ``kind`` is what Go calls what it was to be.
    """
    if value is None:
        return Object([])
    if not isinstance(value, Object):
        raise ValueError(f"json: cannot unmarshal {_named(value)} into Go value of type {kind}")
    return value


def get(value: Object, name: str, into: str, default: Any, where: str = "") -> Any:
    """The field ``name``, of the Go type ``into``: string, bool, int64, float32 or any.

    Raises:
        ValueError: it is of another type; ``where`` is the Go struct it is in.
    """
    found = default
    for key, item in value.pairs:
        if item is None or key.lower() != name:
            continue
        try:
            found = item if into == "any" else _READERS[into](item)
        except ValueError:
            field = f"{where}.{name}"
            what = _named(item)
            if isinstance(item, Number) and into in _NUMERIC:
                what += f" {item.text}"
            told = f"cannot unmarshal {what} into Go struct field {field} of type {into}"
            raise ValueError(f"json: {told}") from None
    return found


def encode(value: Any) -> bytes:
    """JSON as Go writes it, without a newline at its end."""
    text = msgspec.json.encode(value)
    for byte in b"<>&":
        text = text.replace(bytes([byte]), b"\\u%04x" % byte)
    return text


def float32(number: float) -> msgspec.Raw:
    """A 32-bit float in the fewest digits that tell it from others, for :func:`encode`."""
    digits = next(n for n in range(17) if single(float(f"{number:.{n}e}")) == number)
    text = f"{number:.{digits}e}"
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if power < -6 or power >= 21:
        return msgspec.Raw(f"{mantissa}e{exponent[0]}{abs(power)}".encode())
    return msgspec.Raw(f"{float(text):.{max(0, digits - power)}f}".encode())


def _string(item: Value) -> str:
    if not isinstance(item, str):
        raise ValueError
    return item


def _bool(item: Value) -> bool:
    if not isinstance(item, bool):
        raise ValueError
    return item


def _int64(item: Value) -> int:
    if not isinstance(item, Number) or not _WHOLE.fullmatch(item.text) or len(item.text) > 20:
        raise ValueError
    number = int(item.text)
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise ValueError
    return number


def _float32(item: Value) -> float:
    if not isinstance(item, Number):
        raise ValueError
    try:
        return single(float(item.text))
    except OverflowError:
        raise ValueError from None


_READERS: dict[str, Any] = {
    "string": _string,
    "bool": _bool,
    "int64": _int64,
    "float32": _float32,
}


def _named(value: Value) -> str:
    return _NAMES.get(type(value), "object")


def _pairs(pairs: list[tuple[str, Any]]) -> Object:
    return Object([(_text(key), _texts(item)) for key, item in pairs])


def _texts(item: Any) -> Any:
    if isinstance(item, list):
        return [_texts(each) for each in item]
    return _text(item) if isinstance(item, str) else item


def _text(text: str) -> str:
    """Half a surrogate pair is no text: Go puts the replacement character in its place."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refuse(word: str) -> Any:
    raise ValueError(f"invalid character {word[0]!r} looking for beginning of value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse
)
