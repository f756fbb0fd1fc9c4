"""Schedules from traces: the options that commands share, and a command that writes one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from chaosspot import toml
from chaosspot.cli.common import at_least, guarded, out, warn

if TYPE_CHECKING:
    from chaosspot.schedule import Schedule
    from chaosspot.traces import OneMeans, TimeUnit

__all__ = ["From", "Lead", "OneMeansOption", "Speed", "TimeUnitOption", "To", "from_trace", "read"]

NODES = 4  # as schedules that name no cluster have

Speed = Annotated[
    float | None, typer.Option(help="Of a trace: so many times as fast; leads stay. By default 1.")
]
From = Annotated[str | None, typer.Option("--from", help="Where its part begins: 5400, 90m, 1.5h.")]
To = Annotated[str | None, typer.Option("--to", help="Where that ends; by default with the trace.")]
Lead = Annotated[
    float | None, typer.Option(help="Its losses are announced so many seconds ahead, not sudden.")
]
OneMeansOption = Annotated[
    str | None, typer.Option("--one-means", help="Of a 0/1 trace: available or unavailable.")
]
TimeUnitOption = Annotated[
    str | None, typer.Option("--time-unit", help="Of a time,count trace: ms, s or h.")
]


def read(
    trace: Path,
    *,
    nodes: int | None,
    speed: float | None,
    start: str | None,
    end: str | None,
    lead: float | None,
    one_means: str | None,
    time_unit: str | None,
) -> tuple[str, Schedule]:
    """The schedule's name and itself; errors name the file, and the line where there is one."""
    from chaosspot.traces import load, planned
    from chaosspot.traces.spans import seconds

    found = load(
        trace,
        one_means=cast("OneMeans | None", one_means),
        time_unit=cast("TimeUnit | None", time_unit),
    )
    plan = planned(
        found,
        nodes=NODES if nodes is None else nodes,
        speed=1.0 if speed is None else speed,
        from_s=seconds(start, "--from") if start is not None else 0.0,
        to_s=seconds(end, "--to") if end is not None else None,
        lead_s=lead,
    )
    plan.check()
    return trace.stem, plan


@guarded
def from_trace(
    trace: Annotated[Path, typer.Argument(help="Events, counts or a staircase: see the README.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A TOML file to write; else it is shown.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help=f"The most that the cluster has; by default {NODES}.")
    ] = None,
    speed: Speed = None,
    start: From = None,
    end: To = None,
    lead: Lead = None,
    one_means: OneMeansOption = None,
    time_unit: TimeUnitOption = None,
) -> None:
    """Make a schedule of a preemption trace: cut, scaled to a number of nodes, and hurried."""
    at_least(1, nodes=nodes)
    _, plan = read(
        trace,
        nodes=nodes,
        speed=speed,
        start=start,
        end=end,
        lead=lead,
        one_means=one_means,
        time_unit=time_unit,
    )
    if output is None:
        out.print(toml.dumps(plan), markup=False, highlight=False, soft_wrap=True)
        return
    output.write_text(toml.dumps(plan), encoding="utf-8")
    warn(f"wrote {str(output)!r}: {plan.title}")
