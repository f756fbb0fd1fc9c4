"""Where an exploration strikes at random: at the moments it has seen, and around what was bad.

Strategies are made from what was learned between rounds, so that Hypothesis never meets one that
changes under it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace

from chaosspot.explore.fairness import fair, supplied
from chaosspot.explore.ground import Ground
from chaosspot.explore.learned import Learned
from chaosspot.explore.makers import bound
from chaosspot.explore.strategies import within
from chaosspot.explore.times import seconds
from chaosspot.schedule import FaultKind, Schedule, Target, Trigger

__all__ = ["aimed"]

_MOST_NTH = 64
_DELAYS = st.sampled_from([0.0, 0.1, 0.3, 1.0])
_AT_ONCE = ("commit", "begin")  # events that a step tells better


def aimed(ground: Ground, known: Learned, *, max_faults: int = 3) -> SearchStrategy[Schedule]:
    """Schedules on this ground that strike at moments seen, new ones and variants of the corpus."""
    kinds = tuple(kind for kind in ground.kinds if kind not in known.useless)
    ground = replace(ground, kinds=kinds, points=tuple(known.points))
    times = _moments(known)
    fresh = within(ground, max_faults=max_faults, on=times)
    if not known.corpus:
        return fresh.map(_reaching)
    return st.one_of(fresh, _variants(ground, known.corpus, times, max_faults)).map(_reaching)


def _reaching(plan: Schedule) -> Schedule:
    """The same without later faults of named nodes, which earlier ones may have taken.

    Those whose names keep a notice fair stay.
    """
    kinds = {fault.kind for fault in plan.fault}

    def unnamed(fault: FaultKind) -> FaultKind:
        names = fault.target.nodes if fault.target else None
        return (
            fault
            if names is None or "notice" in kinds
            else replace(fault, target=Target(count=len(names)))
        )

    first, *others = plan.fault
    return replace(plan, fault=(first, *map(unnamed, others)))


def _moments(known: Learned) -> SearchStrategy[Trigger]:
    ways: list[SearchStrategy[Trigger]] = [
        st.builds(Trigger, at_step=st.integers(1, 40), delay_s=_DELAYS)
    ]
    if known.points:
        ways.append(_at(known.points, "point"))
    if events := {name: n for name, n in known.events.items() if name not in _AT_ONCE}:
        ways.append(_at(events, "event"))
    ways.append(st.builds(Trigger, at_s=seconds(0.0, 2.0)))
    return st.one_of(ways)


@st.composite
def _at(draw: DrawFn, seen: Mapping[str, int], kind: str) -> Trigger:
    name = draw(st.sampled_from(list(seen)))
    nth = draw(st.integers(1, min(_MOST_NTH, seen[name])))
    if kind == "point":
        return Trigger(point=name, nth=nth)
    return Trigger(event=name, nth=nth, delay_s=draw(_DELAYS))


@st.composite
def _variants(
    draw: DrawFn,
    ground: Ground,
    corpus: tuple[Schedule, ...],
    times: SearchStrategy[Trigger],
    max_faults: int,
) -> Schedule:
    """The worst of the corpus or any other, with one thing about it changed."""
    plan = draw(st.just(corpus[-1]) | st.sampled_from(corpus))
    faults: tuple[FaultKind, ...] = plan.fault
    index = draw(st.integers(0, len(faults) - 1))
    ways = ["move", "exchange", *(["add"] if len(faults) < max_faults else [])]
    match draw(st.sampled_from(ways)):
        case "add":
            faults = (*faults, draw(bound(ground, plan.cluster, on=times)))
        case "exchange":
            new = draw(bound(ground, plan.cluster, on=st.just(faults[index].on)))
            faults = (*faults[:index], new, *faults[index + 1 :])
        case "move":
            on = draw(times)
            if faults[index].kind != "hold" or on.point is not None:
                moved = replace(faults[index], on=on)
                faults = (*faults[:index], moved, *faults[index + 1 :])
    assume(sum(fault.kind == "slow-flash" for fault in faults) <= 1)  # a flash is slow once
    varied = replace(plan, fault=faults)
    return supplied(fair(varied) if ground.fair else varied, min_alive=ground.min_alive)
