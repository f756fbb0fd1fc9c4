"""Net savings: what spot nodes save after all that preemption makes one pay for again.

    1 - [rate_spot (T_run + T_rework)] / [rate_on_demand T_run]

``T_run`` is the run of the same work without interruptions. It has to be known from somewhere: a
result of runs or traces says from where, and so for the discount. Plain ratios need neither.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from chaosspot.checked import at_least_0, below_1
from chaosspot.economics.money import Amount, Rate, one_currency

__all__ = [
    "FIELD_DISCOUNT",
    "FIELD_REWORK",
    "Ledger",
    "Line",
    "NodeClass",
    "Rework",
    "break_even_rework",
    "net_savings",
]

FIELD_DISCOUNT = 0.65  # what the field's formula assumes
FIELD_REWORK = 0.05

NodeClass = Literal["spot", "on-demand", "reserved"]


def net_savings(*, discount: float, rework: float) -> float:
    """The share of the on-demand bill that is saved: 1 - (1 - D)(1 + r); negative for a loss.

    Args:
        discount: of the spot rate, a share of the on-demand rate.
        rework: node-time billed beyond the useful, a share of the useful.

    Raises:
        ValueError: ``discount`` is outside [0, 1) or ``rework`` negative.
    """
    below_1(discount=discount)
    if not rework >= 0:  # infinite when nothing useful was done
        raise ValueError(f"rework = {rework!r}: at least 0")
    return 1 - (1 - discount) * (1 + rework)


def break_even_rework(*, discount: float) -> float:
    """The rework at which spot saves nothing: D / (1 - D).

    Raises:
        ValueError: ``discount`` is outside [0, 1).
    """
    below_1(discount=discount)
    return discount / (1 - discount)


class Rework(msgspec.Struct, frozen=True, kw_only=True):
    """Node-seconds that were billed beyond the useful ones, by cause.

    ``lost``: worked and thrown away. ``restart``: coming back. ``stall``: stopped for a snapshot.
    ``idle``: there, waiting for others.

    Raises:
        ValueError: one is negative.
    """

    lost_node_s: float = 0.0
    restart_node_s: float = 0.0
    stall_node_s: float = 0.0
    idle_node_s: float = 0.0

    def __post_init__(self) -> None:
        at_least_0(**{name: getattr(self, name) for name in self.__struct_fields__})

    @property
    def node_s(self) -> float:
        return self.lost_node_s + self.restart_node_s + self.stall_node_s + self.idle_node_s

    def ratio(self, useful_node_s: float) -> float:
        """Billed extra over useful; infinite when nothing useful was done.

        The uninterrupted run takes no snapshots: stalls are rework.

        Raises:
            ValueError: ``useful_node_s`` is negative.
        """
        at_least_0(useful_node_s=useful_node_s)
        return self.node_s / useful_node_s if useful_node_s else math.inf


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one class of nodes was billed.

    Raises:
        ValueError: the hours are negative.
    """

    node_class: NodeClass
    rate: Rate
    billed_node_h: float

    def __post_init__(self) -> None:
        at_least_0(billed_node_h=self.billed_node_h)

    @property
    def cost(self) -> float:
        return self.rate.per_node_h * self.billed_node_h


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """All that a job was billed, against the same work on on-demand nodes.

    ``run_node_h`` are the node-hours of the run without interruptions, ``run_source`` says how they
    are known and ``discount_source`` where the rates come from. Storage and egress are charged to
    the job on spot nodes alone: name only what the other run would not pay.

    Raises:
        ValueError: a source is missing, the currencies differ, or ``run_node_h`` is not positive.
    """

    lines: tuple[Line, ...]
    on_demand: Rate
    run_node_h: float
    run_source: str
    discount_source: str
    storage: Amount | None = None
    egress: Amount | None = None

    def __post_init__(self) -> None:
        for name in ("run_source", "discount_source"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty: net savings say where they come from")
        if not self.run_node_h > 0:
            raise ValueError(f"run_node_h = {self.run_node_h!r}: above 0")
        one_currency(self._priced())

    @property
    def currency(self) -> str:
        return one_currency(self._priced())

    @property
    def cost(self) -> float:
        """All lines, storage and egress."""
        extras = sum(extra.value for extra in (self.storage, self.egress) if extra)
        return sum(line.cost for line in self.lines) + extras

    @property
    def on_demand_cost(self) -> float:
        return self.on_demand.per_node_h * self.run_node_h

    @property
    def net_savings(self) -> float:
        """A share of :attr:`on_demand_cost`; negative for a loss."""
        return 1 - self.cost / self.on_demand_cost

    def by_class(self) -> dict[str, float]:
        """Cost by node class, and ``storage`` and ``egress`` where there are any."""
        costs: dict[str, float] = {}
        for line in self.lines:
            costs[line.node_class] = costs.get(line.node_class, 0.0) + line.cost
        extras = {"storage": self.storage, "egress": self.egress}
        return costs | {name: extra.value for name, extra in extras.items() if extra}

    def _priced(self) -> list[Amount | Rate]:
        extras = [extra for extra in (self.storage, self.egress) if extra]
        return [self.on_demand, *(line.rate for line in self.lines), *extras]
