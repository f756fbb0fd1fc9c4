"""The command that says where a job's nodes should be, and what may take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from chaosspot import toml
from chaosspot.cli.common import Json, at_least, guarded, out, print_json
from chaosspot.cli.savings import print_rows, read_trace, refuse_idle
from chaosspot.words import plain

if TYPE_CHECKING:
    from chaosspot.economics.placing import Placed
    from chaosspot.economics.risks import Risk

__all__ = ["place"]

_NEEDS = dict.fromkeys(("tick_s", "one_means", "time_unit"), (("trace",),))


@guarded
def place(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A placement file: the job, pools and losses.")],
    nodes: Annotated[int | None, typer.Option(help="Workers, instead of the file's.")] = None,
    min_nodes: Annotated[int | None, typer.Option(help="The least it goes on with.")] = None,
    redundancy: Annotated[int | None, typer.Option(help="Copies of the state.")] = None,
    survive: Annotated[
        list[str] | None,
        typer.Option(help="Whose loss the job must survive: zone, family; by default zone."),
    ] = None,
    keep: Annotated[bool, typer.Option(help="Leave the nodes where the file has them.")] = False,
    at_least_lost: Annotated[
        int | None, typer.Option(help="The k of P(at least k lost); by default half the nodes.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Take losses and their correlation from a trace.")
    ] = None,
    tick_s: Annotated[
        float | None, typer.Option(help="The time that is one moment in it; by default the file's.")
    ] = None,
    one_means: Annotated[
        str | None, typer.Option(help="Of a 0/1 trace: available or unavailable.")
    ] = None,
    time_unit: Annotated[
        str | None, typer.Option(help="Of a time,count trace: ms, s or h.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the placement there, for chaosspot savings.")
    ] = None,
    json: Json = False,
) -> None:
    """Choose where a job's nodes go, and say how likely they are to go together.

    The spread is the cheapest whose loss of any one zone (or family, with --survive) leaves the
    state and the least number of nodes. Coordinators and critical stages go on reserved nodes.
    """
    from chaosspot.economics.files import write_whole
    from chaosspot.economics.placement import Placement
    from chaosspot.economics.placing import Choice, choose, fitted, rows
    from chaosspot.economics.seen import seen_in

    refuse_idle(context, _NEEDS)
    if keep and survive:
        raise ValueError(f"--survive {survive[0]} does not apply: --keep moves no node")
    at_least(1, nodes=nodes, redundancy=redundancy)
    at_least(1, **{"min-nodes": min_nodes, "at-least-lost": at_least_lost})
    given = {"nodes": nodes, "min_nodes": min_nodes, "redundancy": redundancy}
    plan = toml.read(file, Placement)
    plan = msgspec.structs.replace(plan, **{k: v for k, v in given.items() if v is not None})
    seen = None
    if lost := read_trace(trace, one_means, time_unit, None, "not stated"):
        plan = fitted(plan, lost, tick_s=tick_s)
        seen = seen_in(lost, tick_s=plan.losses.tick_s)
    found = choose(
        plan,
        Choice(survive=tuple(survive or ("zone",)), keep=keep, at_least_lost=at_least_lost),
    )
    found = msgspec.structs.replace(found, seen=seen)
    if write is not None:
        write_whole(write, toml.dumps(found.placement).encode())
    if json:
        print_json(found)
        return
    _print_pools(found)
    print_rows(rows(found))
    tick_s = found.placement.losses.tick_s
    if seen and seen.risks:
        print_rows([("in the trace", f"{seen.ticks} ticks began with all {seen.nodes} nodes")])
        _print_risks(tick_s, [("in the trace, ", seen.risks)])
    _print_risks(tick_s, [("as placed, ", found.risks), ("evenly, ", found.even_spreads)])


def _print_pools(found: Placed) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("zone", "family", "class", "nodes", "price"):
        table.add_column(column)
    for pool in found.placement.pool:
        price = f"{pool.per_node_h:g} {pool.currency}"
        names = [plain(text) for text in (pool.zone, pool.family, pool.node_class)]
        table.add_row(*names, str(pool.nodes), plain(price))
    out.print(table, highlight=False, markup=False)


def _print_risks(tick_s: float, groups: list[tuple[str, Sequence[Risk]]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    at_least = groups[0][1][0].at_least
    for column in (f"within {tick_s:g} s", "pools", "any", f"{at_least} or more", "all"):
        table.add_column(column)
    for how, risks in groups:
        for risk in risks:
            chances = (risk.p_any, risk.p_at_least, risk.p_all)
            table.add_row(how + risk.model, str(risk.pools), *(f"{p:.3g}" for p in chances))
    out.print(table, highlight=False, markup=False)
