"""Strategies for when faults strike."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from chaosspot.explore.ground import EVENTS
from chaosspot.schedule import Trigger

__all__ = ["at_points", "seconds", "triggers"]


@functools.lru_cache(maxsize=512)
def seconds(least_s: float, most_s: float) -> SearchStrategy[float]:
    """Whole tenths of a second: what people write, and what a TOML file gives back exactly."""
    return st.integers(round(least_s * 10), round(most_s * 10)).map(lambda tenths: tenths / 10)


def triggers(
    *,
    min_step: int = 1,
    max_step: int = 60,
    min_s: float = 0.0,
    max_s: float = 10.0,
    max_nth: int = 5,
    max_delay_s: float = 2.0,
    events: Sequence[str] = EVENTS,
    points: Sequence[str] = (),
) -> SearchStrategy[Trigger]:
    """When a fault acts: at a step, at a time, at an event or at a point; the smallest is early.

    Args:
        min_step, max_step: of ``at_step``.
        min_s, max_s: of ``at_s``, in seconds.
        max_nth: how many events or hits of a point may be waited for.
        max_delay_s: what is added, in seconds; points take no delay.
        events, points: names that may be waited for; any that the trainer reports.

    Raises:
        ValueError: bounds that leave nothing.
    """
    for name, least, most in (("step", min_step, max_step), ("s", min_s, max_s)):
        if not least <= most:
            raise ValueError(f"min_{name} = {least}, max_{name} = {most}: nothing is between")
    if min_step < 1 or max_nth < 1 or min_s < 0 or max_delay_s < 0:
        raise ValueError(
            f"min_step = {min_step}, max_nth = {max_nth} (from 1), "
            f"min_s = {min_s}, max_delay_s = {max_delay_s} (from 0)"
        )
    delays = seconds(0, max_delay_s)
    jitters = st.just(0.0) | delays
    kinds: list[SearchStrategy[Trigger]] = [
        st.builds(Trigger, at_step=st.integers(min_step, max_step)),
        st.builds(Trigger, at_s=seconds(min_s, max_s), jitter_s=jitters),
    ]
    if events:
        names, nths = st.sampled_from(list(events)), st.integers(1, max_nth)
        kinds.append(st.builds(Trigger, event=names, nth=nths, delay_s=delays, jitter_s=jitters))
    if points:
        kinds.append(at_points(points, max_nth=max_nth))
    return st.one_of(kinds)


def at_points(points: Sequence[str], *, max_nth: int) -> SearchStrategy[Trigger]:
    """Triggers that wait for one of these points."""
    return _at_points(tuple(points), max_nth)


@functools.lru_cache
def _at_points(points: tuple[str, ...], max_nth: int) -> SearchStrategy[Trigger]:
    return st.builds(Trigger, point=st.sampled_from(points), nth=st.integers(1, max_nth))
