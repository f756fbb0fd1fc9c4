"""Which format a file has, and the questions that only its user can answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from chaosspot.traces import counts, events, staircase
from chaosspot.traces.trace import Counts, Trace, TraceError

__all__ = ["FORMATS", "OneMeans", "TimeUnit", "load", "loads"]

OneMeans = Literal["available", "unavailable"]
TimeUnit = Literal["ms", "s", "h"]
FORMATS = ("events", "segments", "counts", "staircase", "dated")

_UNIT_S = {"ms": 0.001, "s": 1.0, "h": 3600.0}
_NUMBER = r"\s*[\d.]+(?:[eE][+-]?\d+)?\s*"


def load(
    path: Path,
    *,
    one_means: OneMeans | None = None,
    time_unit: TimeUnit | None = None,
    held: bool | None = None,
    licence: str = "not stated",
) -> Trace:
    """Read a trace; see :func:`loads`.

    Raises:
        TraceError: with the path, and what is wrong or has to be said.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise TraceError(f"cannot read the trace {str(path)!r}: {reason}") from error
    return loads(
        text, name=str(path), one_means=one_means, time_unit=time_unit, held=held, licence=licence
    )


def loads(
    text: str,
    *,
    name: str = "<text>",
    one_means: OneMeans | None = None,
    time_unit: TimeUnit | None = None,
    held: bool | None = None,
    licence: str = "not stated",
) -> Trace:
    """The trace in a text of any known format.

    Args:
        text: the whole file.
        name: what errors and results call it.
        one_means: what 1 means in a series of zeros and ones. There is no default: copies of the
            same public data circulate with either meaning.
        time_unit: of a staircase; the files do not say.
        held: whether counts are of held nodes; by default for all formats but ``counts``.
        licence: what the source states.

    Raises:
        TraceError: the format is unknown, the text is damaged, or one of the above must be said.
    """
    for option, given, valid in (
        ("one_means", one_means, get_args(OneMeans)),
        ("time_unit", time_unit, get_args(TimeUnit)),
    ):
        if given is not None and given not in valid:
            raise TraceError(f"{option} = {given!r}: valid: {', '.join(valid)}")
    kind = _format_of(text, name)
    if time_unit is not None and kind != "staircase":
        raise TraceError(f"{name}: {kind} say their unit; time_unit is for time,count lines")
    if kind in ("events", "segments"):
        read = events.read if kind == "events" else events.read_segments
        if one_means == "unavailable":
            raise TraceError(f"{name}: events say what they mean; one_means is for 0/1 series")
        times_s, found, lost, end_s = read(text, name)
    else:
        if kind == "counts":
            times_s, found, end_s = counts.read(text, name)
        elif kind == "dated":
            times_s, found, end_s = staircase.read_dated(text, name)
        elif time_unit is None:
            raise TraceError(f"{name}: its times have no unit: say time_unit, ms, s or h")
        else:
            times_s, found, end_s = staircase.read(text, name, _UNIT_S[time_unit])
        found = _with_polarity(found, one_means, name)
        lost = np.maximum(0, -np.diff(found, prepend=found[:1]))
    return Trace(
        name=name,
        times_s=times_s,
        counts=found,
        lost=lost,
        end_s=end_s,
        held=kind != "counts" if held is None else held,
        licence=licence,
    )


def _format_of(text: str, name: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not first:
        raise TraceError(f"{name}: the trace is empty")
    if first.startswith("{"):
        return "counts"
    if first.startswith("["):
        return "segments"
    patterns = {
        "events": r"\s*\d+\s*,\s*(add|remove)\s*,.+",
        "staircase": f"{_NUMBER},{_NUMBER}",
        "dated": rf"\d{{4}}-\d\d-\d\d\s*,\s*\d\d:\d\d:\d\d\s*,{_NUMBER}",
    }
    for kind, pattern in patterns.items():
        if re.fullmatch(pattern, first):
            return kind
    shown = json.dumps(first[:80], ensure_ascii=False)
    raise TraceError(
        f"{name}: unknown format, starts with {shown}; known: {', '.join(FORMATS)} "
        "(see chaosspot.traces)"
    )


def _with_polarity(found: Counts, one_means: OneMeans | None, name: str) -> Counts:
    if found.max() <= 1:
        if one_means is None:
            raise TraceError(
                f"{name}: a series of zeros and ones: say one_means, available or unavailable; "
                "copies of public data circulate with either"
            )
        there = found if one_means == "available" else 1 - found
        if not there.max():
            raise TraceError(
                f"{name}: with one_means = {one_means!r} it never has a node: all "
                f"{len(found)} values are {int(found[0])}; is it the other way round?"
            )
        return there
    if one_means == "unavailable":
        raise TraceError(
            f"{name}: holds counts up to {int(found.max())}: one_means = 'unavailable' is for "
            "series of zeros and ones"
        )
    return found
