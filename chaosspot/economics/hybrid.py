"""Some nodes reserved, the rest on spot: insurance, priced as such.

Which nodes: the coordinator and the pipeline stages that nothing can stand in for are *critical*
and go on reserved nodes; data-parallel workers, which peers can replace, go on spot. That this
loses less work has to be measured; the price of it is arithmetic.
"""

from __future__ import annotations

import msgspec

from chaosspot.checked import at_least_0, below_1, share

__all__ = ["Hybrid"]


class Hybrid(msgspec.Struct, frozen=True, kw_only=True):
    """A job with a share of reserved nodes.

    ``reserved_share``: of the nodes. ``reserved_price``: of a reserved node, a share of on-demand.
    ``discount``: of spot. ``waiting_h_per_h``: hours that the job waits for spot for each hour it
    runs, in which reserved nodes are billed idle.

    Raises:
        ValueError: a value is out of its range.
    """

    reserved_share: float
    reserved_price: float
    discount: float
    waiting_h_per_h: float = 0.0

    def __post_init__(self) -> None:
        share(reserved_share=self.reserved_share)
        below_1(discount=self.discount)
        at_least_0(reserved_price=self.reserved_price, waiting_h_per_h=self.waiting_h_per_h)

    @property
    def price(self) -> float:
        """Of one node-hour of the mixture, a share of on-demand."""
        reserved = self.reserved_share * self.reserved_price * (1 + self.waiting_h_per_h)
        return reserved + (1 - self.reserved_share) * (1 - self.discount)

    def net_savings(self, *, rework: float) -> float:
        """1 - [f rho (1 + w) + (1 - f)(1 - D)] (1 + r).

        Raises:
            ValueError: ``rework`` is negative.
        """
        at_least_0(rework=rework)
        return 1 - self.price * (1 + rework)

    @property
    def break_even_rework(self) -> float:
        """The rework on spot alone above which this mixture, without any, is cheaper.

        Negative where the mixture is cheaper at any.
        """
        return self.price / (1 - self.discount) - 1
