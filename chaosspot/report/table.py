"""A verdict as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaosspot.report.over_time import bars
from chaosspot.report.statistics import summarise
from chaosspot.verdict import Finding, Outcome, Verdict
from chaosspot.words import count, plain

__all__ = ["print_summary", "print_verdict"]

_COLOUR = {Outcome.PASS: "green", Outcome.UNKNOWN: "yellow", Outcome.FAIL: "red"}


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Outcome, figures and findings; what failed comes with its cause and its replay command."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for column in ("oracle", "outcome", "measured", "bound", "finding"):
        table.add_column(column, overflow="fold")
    for finding in verdict.findings:
        causes = ", ".join(finding.caused_by)
        cause = f" [dim](follows from {causes})[/]" if causes else ""
        table.add_row(
            _literal(finding.oracle),
            _coloured(finding.outcome),
            _literal(_amount(finding.measured, finding.unit)),
            _literal(_amount(finding.bound, finding.unit)),
            escape(finding.message) + cause,
        )
    console.print(table)
    console.print(_figures(verdict))
    console.print(_nodes(verdict.measured.get("nodes_over_time") or ()), highlight=False, end="")
    what = f"{_literal(verdict.schedule)} on {_literal(verdict.trainer)}"
    console.print(f"[bold]{_coloured(verdict.outcome)}  {what}[/], seed {verdict.seed}")
    primary = verdict.primary
    if primary is not None:
        oracle, message = _literal(primary.oracle), escape(primary.message)
        console.print(f"  because of [bold]{oracle}[/]: {message}")
        console.print(f"  replay: {_literal(verdict.replay)}", soft_wrap=True)
    console.print()


def print_summary(verdicts: Sequence[Verdict], console: Console) -> None:
    """One line a verdict, and how many of each outcome; for several attacks."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("attack", "seed", "outcome", "recovery", "catch-up", "rework", "goodput", "why"):
        table.add_column(column)
    for verdict in verdicts:
        measured = verdict.measured
        primary: Finding | None = verdict.primary
        table.add_row(
            _literal(verdict.schedule),
            str(verdict.seed),
            _coloured(verdict.outcome),
            _amount(measured.get("recovery_s"), "s"),
            _amount(measured.get("catch_up_s"), "s"),
            _amount(measured.get("rework_steps"), "steps"),
            _share(measured.get("goodput")),
            _literal(primary.oracle) if primary else "",
        )
    console.print(table)
    for name in dict.fromkeys(v.schedule for v in verdicts):
        for line in _spread([v for v in verdicts if v.schedule == name]):
            console.print(f"{_literal(name)}: {line}", highlight=False)
    counts = [(o, sum(v.outcome is o for v in verdicts)) for o in Outcome]
    console.print(", ".join(f"{count} {_coloured(outcome)}" for outcome, count in counts if count))


def _spread(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Median, its interval and worst of each figure; nothing for a single run."""
    if len(verdicts) < 2:
        return
    for summary in summarise(verdicts):
        yield (
            f"{summary.figure} median {summary.median:.3g} "
            f"(95 % {summary.low:.3g} to {summary.high:.3g}), "
            f"worst {summary.worst:.3g} of {count(summary.runs, 'run')}"
        )


def _figures(verdict: Verdict) -> str:
    measured = verdict.measured
    return (
        f"[dim]measured:[/] recovery {_amount(measured.get('recovery_s'), 's')}, "
        f"catch-up {_amount(measured.get('catch_up_s'), 's')}, "
        f"rework {_amount(measured.get('rework_steps'), 'steps')}, "
        f"goodput {_share(measured.get('goodput'))} "
        f"of {_amount(measured.get('billed_node_s'), 'node-seconds')}, "
        f"{count(measured.get('steps', 0), 'step')}{_soft(measured.get('soft_errors'))}"
    )


def _nodes(points: Sequence[Sequence[float]]) -> str:
    """How many nodes there were over time, where that changed."""
    numbers = [int(number) for _, number in points]
    if len(set(numbers)) < 2:
        return ""
    span_s = points[-1][0] - points[0][0]
    return (
        f"[dim]nodes:[/] {bars(points)} "
        f"{min(numbers)} to {max(numbers)} in {_amount(span_s, 's')}, {numbers[-1]} at the end\n"
    )


def _soft(errors: int | None) -> str:
    return f", {count(errors, 'soft error')} that training went on without" if errors else ""


def _coloured(outcome: Outcome) -> str:
    return f"[{_COLOUR[outcome]}]{outcome}[/]"


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return f"{round(value, 2) + 0.0:.2f} s"  # without the minus of a rounded -0.0
    if unit == "x":
        return f"{value:.1f} x"
    if unit == "%":
        return f"{value:.1f} %"
    if unit.endswith("s"):
        return count(round(value), unit.removesuffix("s"))
    return f"{value:.0f} {unit}".strip()


def _literal(text: str) -> str:
    """Text from a file or a name: neither markup nor more than one line."""
    return escape(plain(text))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
