"""A misbehaviour as people type it: a kind and its parameters, ``status,status=503,rate=0.5``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

import msgspec

__all__ = ["pairs_of", "typed"]


def typed(text: str, union: Any, *, lists: Collection[str] = ()) -> Any:
    """The struct of a tagged union that ``text`` says; values of ``lists`` are joined by ``+``.

    Raises:
        ValueError: an unknown kind or parameter, with those that there are, or a bad value.
    """
    kind, *rest = text.split(",")
    kind = kind.removeprefix("kind=")  # as it is written in files
    kinds = {str(each.__struct_config__.tag): each for each in get_args(union)}
    if kind not in kinds:
        raise ValueError(f"{text!r}: no kind {kind!r}; valid: {', '.join(kinds)}")
    data: dict[str, Any] = dict(pairs_of(rest))
    known = kinds[kind].__struct_fields__
    for name in data:
        if name not in known:
            raise ValueError(f"{text!r}: {kind} has no {name!r}; valid: {', '.join(known)}")
    for name in lists:
        if name in data:
            data[name] = data[name].split("+")
    try:
        return msgspec.convert({"kind": kind, **data}, union, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{text!r}: {error}") from error


def pairs_of(words: Collection[str]) -> dict[str, str]:
    """Names and values from ``name=value`` words.

    Raises:
        ValueError: a word that is none, or a name that comes twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in found:
            raise ValueError(f"{word!r}: expected name=value, and each name once")
        found[name] = value
    return found
