"""Savings as pictures: over rework and discount, the bill by class, nodes over time.

Drawn by matplotlib, which the extra ``plot`` installs.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from chaosspot.economics.files import write_whole
from chaosspot.economics.ledger import FIELD_REWORK, Ledger, net_savings
from chaosspot.economics.savings import Savings
from chaosspot.traces.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_SUFFIXES = (".svg", ".png")


def draw(found: Savings, path: Path, *, trace: Trace | None = None) -> None:
    """Write the picture to ``path``, as SVG or PNG by its name.

    Raises:
        ValueError: the name is neither, matplotlib is missing, or the file cannot be written.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"plot {str(path)!r}: a name that ends in {' or '.join(_SUFFIXES)}")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("plots need matplotlib: pip install 'chaosspot[plot]'") from error
    ledger = found.ledger
    panels = 1 + (ledger is not None) + (trace is not None)
    # Without a date and with fixed names inside, the same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "chaosspot", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.2 * panels, 4.0), layout="constrained")
        axes = list(np.atleast_1d(figure.subplots(1, panels)))
        _over_rework(axes.pop(0), found)
        if ledger is not None:
            _by_class(axes.pop(0), ledger)
        if trace is not None:
            _over_time(axes.pop(0), trace)
        kind = path.suffix.lower()[1:]
        picture = io.BytesIO()
        date = {"Date": None} if kind == "svg" else None
        figure.savefig(picture, format=kind, dpi=150, metadata=date)
    write_whole(path, picture.getvalue())


def _over_rework(axes: Axes, found: Savings) -> None:
    far = max(0.5, 1.5 * (found.rework if found.rework and found.rework < 10 else 0.0))
    rework = np.linspace(0, far, 101)
    for discount in sorted({0.3, 0.5, 0.65, 0.8, found.discount}):
        mine = discount == found.discount
        axes.plot(
            100 * rework,
            [100 * net_savings(discount=discount, rework=float(r)) for r in rework],
            color="C0" if mine else "0.75",
            linewidth=2 if mine else 1,
            label=f"discount {discount:.0%}" if mine else None,
        )
        if not mine:
            edge = 100 * net_savings(discount=discount, rework=far)
            axes.annotate(f"{discount:.0%}", (100 * far, edge), color="0.5", fontsize=8)
    assumed = net_savings(discount=found.discount, rework=FIELD_REWORK)
    axes.plot(100 * FIELD_REWORK, 100 * assumed, "o", color="C7", label="5 % rework, assumed")
    if found.rework is not None and found.net_savings is not None and found.rework < 10:
        bounds = found.on_trace.net_savings if found.on_trace else None
        error = None
        if bounds and np.isfinite([bounds.low, bounds.high]).all():
            error = [[100 * (bounds.value - bounds.low)], [100 * (bounds.high - bounds.value)]]
        axes.errorbar(
            100 * found.rework,
            100 * found.net_savings,
            yerr=error,
            fmt="D",
            color="C3",
            capsize=4,
            label="this job",
        )
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set(title="Net savings over rework", xlabel="rework (%)", ylabel="net savings (%)")
    axes.legend(fontsize=8)


def _by_class(axes: Axes, ledger: Ledger) -> None:
    bottom = 0.0
    for number, (name, cost) in enumerate(ledger.by_class().items()):
        axes.bar("this job", cost, bottom=bottom, color=f"C{number}", label=name)
        bottom += cost
    axes.bar("all on demand", ledger.on_demand_cost, color="0.75")
    axes.set(title="Bill by node class", ylabel=ledger.currency)
    axes.legend(fontsize=8)


def _over_time(axes: Axes, trace: Trace) -> None:
    edges = np.append(trace.times_s, trace.end_s) / 3600
    axes.step(edges, np.append(trace.counts, trace.counts[-1]), where="post", linewidth=1)
    lost = trace.times_s[trace.lost > 0] / 3600
    axes.plot(lost, np.zeros(len(lost)), "|", color="C3", markersize=8, label="nodes lost")
    axes.set(title="Nodes over time", xlabel="hours", ylabel="nodes", ylim=(0, None))
    axes.legend(fontsize=8)
