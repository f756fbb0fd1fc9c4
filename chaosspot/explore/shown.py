"""How a test that fails shows the schedule it failed with."""

from __future__ import annotations

from hypothesis import currently_in_test_context, note

from chaosspot import toml
from chaosspot.schedule import Schedule

__all__ = ["shown"]


def shown(plan: Schedule, trainer: str | None) -> Schedule:
    """The schedule, which a failing test will show as a file and a command."""
    if currently_in_test_context():
        who = f" --trainer {trainer}" if trainer else ""
        note(
            f"The schedule, as failing.toml:\n\n{toml.dumps(plan)}\n"
            f"Without Hypothesis: chaosspot attack failing.toml{who}"
        )
    return plan
