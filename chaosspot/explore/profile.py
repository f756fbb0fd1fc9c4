"""How Hypothesis has to run a test that attacks real processes, and what it draws for our types."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast, get_args

from hypothesis import HealthCheck, Phase, settings
from hypothesis.strategies import SearchStrategy

__all__ = ["attacking", "register"]

attacking = settings(
    deadline=None,  # an attack takes seconds, and now and then many
    max_examples=20,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,  # each attack has a run directory of its own
    ],
)
"""A decorator for tests that attack; ``settings(attacking, max_examples=5)`` has fewer examples."""


def register() -> None:
    """Let ``from_type`` draw schedules and their parts; an entry point of Hypothesis calls this.

    Strategies are made when they are asked for, not in every process that imports Hypothesis.
    """
    import hypothesis.strategies as st

    from chaosspot import nodes, schedule

    for kind, name in (
        (schedule.Schedule, "schedules"),
        (schedule.Trigger, "triggers"),
        (schedule.Target, "targets"),
        (nodes.ClusterSpec, "clusters"),
        (schedule.Fault, "faults"),
    ):
        st.register_type_strategy(kind, _Later(name))
    for fault in get_args(schedule.FaultKind):
        st.register_type_strategy(fault, _Later("faults", kinds=(fault.kind,)))


class _Later:
    """A strategy of ours that is made when Hypothesis asks for it."""

    def __init__(self, name: str, **options: Any) -> None:
        self._name = name
        self._options = options

    def __call__(self, _: type[Any]) -> SearchStrategy[Any]:
        made = getattr(import_module("chaosspot.explore"), self._name)(**self._options)
        return cast("SearchStrategy[Any]", made)
