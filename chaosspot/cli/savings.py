"""The command that says what spot nodes save a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.markup import escape
from rich.table import Table

from chaosspot import toml
from chaosspot.cli.common import Json, at_least, guarded, out, print_json
from chaosspot.words import plain

if TYPE_CHECKING:
    from chaosspot import traces
    from chaosspot.economics.measured import Measured
    from chaosspot.economics.money import Rate
    from chaosspot.traces.trace import Trace

__all__ = ["print_rows", "read_trace", "refuse_idle", "savings"]

_BASES = ("trace", "mtbi_h", "placement")
# What each option needs beside it, to be of any use: one of the first, and one of the second ...
_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("one_means", "time_unit", "held", "licence"), (("trace",),)),
    **dict.fromkeys(("nodes", "min_nodes", "reserved_nodes", "fallback"), (("trace",),)),
    **dict.fromkeys(("bill_waiting", "survives_nodes", "join_s"), (("trace",),)),
    **dict.fromkeys(("storage", "egress", "starts", "samples", "seed"), (("trace",),)),
    **dict.fromkeys(("stall_s", "restart_s", "lost_s", "interval_s"), (_BASES,)),
    **dict.fromkeys(("noticed", "state_bytes"), (("runs",), _BASES)),
    **dict.fromkeys(("bandwidth_bytes_per_s", "step_s"), (("runs",), _BASES)),
    "reserved_rate": (("reserved_nodes",),),
}
_COSTS = ("stall_s", "restart_s", "lost_s", "interval_s")


@guarded
def savings(
    context: typer.Context,
    discount: Annotated[
        float | None, typer.Option(help="Of spot, a share of on-demand: 0.65.")
    ] = None,
    discount_source: Annotated[
        str | None, typer.Option(help="Where that comes from, and when.")
    ] = None,
    spot_rate: Annotated[
        str | None, typer.Option(help="For a node and hour: 1.20, or 1.20 EUR.")
    ] = None,
    on_demand_rate: Annotated[str | None, typer.Option(help="Likewise.")] = None,
    reserved_rate: Annotated[
        str | None, typer.Option(help="Likewise; by default as on-demand.")
    ] = None,
    storage: Annotated[str | None, typer.Option(help="Cost of storage, for the trace.")] = None,
    egress: Annotated[str | None, typer.Option(help="Cost of egress, for the trace.")] = None,
    rework: Annotated[
        float | None, typer.Option(help="Assumed: billed beyond the useful, a share of it.")
    ] = None,
    runs: Annotated[
        list[Path] | None, typer.Option(help="Attacks to measure in: runs, or folders of them.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Capacity to replay the job on.")] = None,
    one_means: Annotated[
        str | None, typer.Option(help="Of a 0/1 trace: available or unavailable.")
    ] = None,
    time_unit: Annotated[
        str | None, typer.Option(help="Of a time,count trace: ms, s or h.")
    ] = None,
    held: Annotated[
        bool | None,
        typer.Option("--held/--probed", help="Whether the trace is of held nodes or of probes."),
    ] = None,
    licence: Annotated[str, typer.Option(help="What the trace's source states.")] = "not stated",
    placement: Annotated[
        Path | None, typer.Option(help="A placement file, as chaosspot place writes it.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="The most the job uses; by default the trace's most.")
    ] = None,
    min_nodes: Annotated[
        int | None,
        typer.Option(help="The least it runs with; by default the trainer's, else all: a gang."),
    ] = None,
    reserved_nodes: Annotated[int, typer.Option(help="Of these, never lost.")] = 0,
    fallback: Annotated[
        bool, typer.Option(help="On-demand nodes stand in; it never waits.")
    ] = False,
    bill_waiting: Annotated[
        bool, typer.Option(help="Nodes that wait are kept and billed.")
    ] = False,
    survives_nodes: Annotated[
        int | None, typer.Option(help="Nodes that may go at once and leave peers with the state.")
    ] = None,
    stall_s: Annotated[
        float | None, typer.Option(help="Of a snapshot, instead of measuring.")
    ] = None,
    restart_s: Annotated[
        float | None, typer.Option(help="After an interruption, likewise.")
    ] = None,
    lost_s: Annotated[
        float | None, typer.Option(help="Work lost in one, while peers hold it.")
    ] = None,
    join_s: Annotated[float | None, typer.Option(help="Until a new node takes part.")] = None,
    interval_s: Annotated[
        str | None, typer.Option(help="Between snapshots, in seconds; or auto, the best.")
    ] = None,
    noticed: Annotated[
        float, typer.Option(help="Share of interruptions that a notice announces.")
    ] = 0.0,
    mtbi_h: Annotated[
        float | None, typer.Option(help="Hours between interruptions, if independent.")
    ] = None,
    state_bytes: Annotated[
        float | None, typer.Option(help="Of a job larger than the attacked one, a node.")
    ] = None,
    bandwidth_bytes_per_s: Annotated[
        float | None, typer.Option(help="At which it copies its state.")
    ] = None,
    step_s: Annotated[float | None, typer.Option(help="A step of it.")] = None,
    starts: Annotated[int, typer.Option(help="Times in the trace at which the job begins.")] = 8,
    samples: Annotated[int, typer.Option(help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw it: an .svg or .png file.")] = None,
    json: Json = False,
) -> None:
    """Say what spot nodes save a job, after all that preemption makes it pay for again.

    From ratios: --discount 0.65 --rework 0.05. From attacks: --runs runs. On a trace of real
    capacity: --trace FILE, with what --runs measured or with --stall-s, --restart-s and
    --interval-s. For a placement: --placement FILE with --rework, or with costs.
    """
    import numpy as np

    from chaosspot.economics import prices, scaling
    from chaosspot.economics.placement import Placement
    from chaosspot.economics.question import Question, answer
    from chaosspot.economics.savings import rows

    refuse_idle(context, _NEEDS)
    costs = [name for name in _COSTS if context.params[name] is not None]
    if costs and rework is not None:
        raise ValueError(f"{_option(costs[0])} does not apply: --rework {rework:g} says it all")
    at_least(1, nodes=nodes, starts=starts, samples=samples, **{"min-nodes": min_nodes})
    at_least(0, seed=seed, **{"reserved-nodes": reserved_nodes, "survives-nodes": survives_nodes})
    placed = toml.read(placement, Placement) if placement else None
    own = (discount, discount_source, spot_rate, on_demand_rate, reserved_rate)
    if placed and any(price is not None for price in own):
        raise ValueError(f"{str(placement)!r} has prices of its own: say no discount or rate")
    held_trace = read_trace(trace, one_means, time_unit, held, licence)
    found = answer(
        Question(
            prices=prices.prices(
                discount=discount,
                spot=_rate(spot_rate),
                on_demand=_rate(on_demand_rate),
                reserved=_rate(reserved_rate),
                source=discount_source or "",
            )
            if placed is None
            else prices.of_placement(placed),
            rework=rework,
            measured=_measured(runs),
            size=scaling.job_size(
                state_bytes=state_bytes,
                bandwidth_bytes_per_s=bandwidth_bytes_per_s,
                step_s=step_s,
            ),
            trace=held_trace,
            placement=placed,
            mtbi_h=mtbi_h,
            stall_s=stall_s,
            restart_s=restart_s,
            lost_s=lost_s,
            join_s=join_s,
            interval_s=_interval(interval_s),
            noticed=noticed,
            nodes=nodes,
            min_nodes=min_nodes,
            reserved_nodes=reserved_nodes,
            fallback=fallback,
            bill_waiting=bill_waiting,
            survives_nodes=survives_nodes,
            storage=prices.parse_amount(storage) if storage is not None else None,
            egress=prices.parse_amount(egress) if egress is not None else None,
            starts=starts,
            samples=samples,
        ),
        np.random.default_rng(seed),
    )
    if plot is not None:
        from chaosspot.economics.plot import draw

        draw(found, plot, trace=held_trace)
    if json:
        print_json(found)
    else:
        print_rows(rows(found))


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Labels and what was found, the last one the headline."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", overflow="fold")
    table.add_column(overflow="fold")
    listed = list(rows)
    for number, (label, text) in enumerate(listed, 1):
        shown = escape(plain(text))
        last = number == len(listed)
        table.add_row(escape(plain(label)), f"[bold]{shown}[/]" if last else shown)
    out.print(table, highlight=False)


def refuse_idle(context: typer.Context, needs: Mapping[str, tuple[tuple[str, ...], ...]]) -> None:
    """Refuse an option that would change nothing: each needs one of every group beside it.

    Raises:
        ValueError: with the option, and what it needs.
    """
    sources = {name: context.get_parameter_source(name) for name in context.params}
    said = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    for name in context.params:  # in the order of the help
        for group in needs.get(name, ()) if name in said else ():
            if not said.intersection(group):
                needed = " or ".join(_option(other) for other in group)
                raise ValueError(f"{_option(name)} does not apply without {needed}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _rate(text: str | None) -> Rate | None:
    from chaosspot.economics.prices import parse_rate

    return None if text is None else parse_rate(text)


def _measured(runs: list[Path] | None) -> Measured | None:
    if not runs:
        return None
    from chaosspot.economics.measured import read_runs

    return read_runs(runs)


def read_trace(
    path: Path | None, one_means: str | None, time_unit: str | None, held: bool | None, licence: str
) -> Trace | None:
    if path is None:
        return None
    from chaosspot import traces

    return traces.load(
        path,
        one_means=cast("traces.OneMeans | None", one_means),
        time_unit=cast("traces.TimeUnit | None", time_unit),
        held=held,
        licence=licence,
    )


def _interval(text: str | None) -> float | Literal["auto"] | None:
    if text is None or text == "auto":
        return cast("Literal['auto'] | None", text)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"interval_s = {text!r}: seconds, or auto") from None
