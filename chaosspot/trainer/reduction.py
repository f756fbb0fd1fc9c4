"""An all-reduce whose result does not depend on who takes part, or in which order.

Floating-point addition is not associative, so the same gradients summed over three ranks and
over five differ in the last bits, and the runs drift apart. Integer addition is associative.
The global batch is therefore M fixed micro-shards; each micro-shard's gradient is rounded to
64-bit fixed point by itself, and ranks add integers. One buffer carries it all::

    [ gradient: n | how often each micro-shard is in it: M | sum of the losses: 1 | votes: 4 ]

in int64, so every survivor of a step knows the same gradient, the same samples and the same loss,
and what its members want to do next.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from chaosspot.trainer.config import TrainerError

__all__ = ["ExactReduction", "NotFiniteError", "Votes"]

_SCALE_BITS = 40  # 2**-40 is the smallest step, about 1e-12
_SUM_BITS = 62  # |sum over M micro-shards| stays below 2**62


class Votes(NamedTuple):
    """How many members want what after the step."""

    snapshot: int
    leave: int
    busy: int
    """Could not take part in a snapshot without giving up another."""
    uploading: int
    """Have a part on its way to the store."""


_VOTES = len(Votes._fields)


class NotFiniteError(TrainerError):
    """A gradient or loss is NaN, infinite, or too large for the fixed-point range."""


class ExactReduction:
    """Preallocated buffers for one model: ``parameters`` values, ``micro_shards`` shards.

    Fill it with :meth:`clear` and :meth:`add`, sum :attr:`buffer` over the ranks (integers,
    ``ReduceOp.SUM``), read it with :meth:`gradient_into`, :meth:`samples` and :meth:`loss`.
    """

    def __init__(self, parameters: int, micro_shards: int, device: torch.device) -> None:
        self._n = parameters
        self._shards = micro_shards
        size = parameters + micro_shards + 1 + _VOTES
        self._sum = torch.zeros(size, dtype=torch.int64, device=device)
        self._wide = torch.zeros(parameters, dtype=torch.float64, device=device)
        self._rounded = torch.zeros(parameters, dtype=torch.int64, device=device)
        on_cpu = device.type == "cpu"
        self.buffer: Tensor = (
            self._sum if on_cpu else torch.zeros(size, dtype=torch.int64, pin_memory=True)
        )
        """What is summed over the ranks: (n + M + 5) int64 in host memory."""
        # Every micro-shard may use an equal part of the range, so that no sum can overflow.
        self._limit = 2.0 ** (_SUM_BITS - _SCALE_BITS) / micro_shards

    def clear(self) -> None:
        """Start a step."""
        self._sum.zero_()

    def add(self, micro_shard: int, gradient: Tensor, loss: Tensor) -> None:
        """Add one micro-shard: ``gradient`` (n,) float, ``loss`` scalar, both on the device.

        Raises:
            NotFiniteError: either is NaN or infinite, or does not fit the fixed-point range.
        """
        loss = loss.detach()
        for name, value in (("gradient", gradient), ("loss", loss)):
            largest = float(value.abs().max())
            if not largest < self._limit:  # also true for NaN
                raise NotFiniteError(
                    f"{name} of micro-shard {micro_shard} is not finite or too large for an exact "
                    f"sum: largest magnitude {largest!r}, limit {self._limit:g}; "
                    f"try a smaller learning rate"
                )
        self._wide.copy_(gradient).mul_(2.0**_SCALE_BITS).round_()
        self._sum[: self._n].add_(self._rounded.copy_(self._wide))
        self._sum[self._n + micro_shard] += 1
        self._sum[self._n + self._shards] += round(float(loss) * 2.0**_SCALE_BITS)

    def vote(self, votes: Votes) -> None:
        """What this rank has to say on what is done after the step: 0 or 1 each."""
        self._sum[-_VOTES:] = torch.tensor(votes)

    def to_host(self) -> Tensor:
        """:attr:`buffer`, holding what was added on this rank."""
        if self.buffer is not self._sum:
            self.buffer.copy_(self._sum)
        return self.buffer

    def gradient_into(self, gradient: Tensor) -> None:
        """Write the mean over the M micro-shards into ``gradient`` (n,) float, on the device."""
        if self.buffer is not self._sum:
            self._sum.copy_(self.buffer)
        self._wide.copy_(self._sum[: self._n]).div_(2.0**_SCALE_BITS * self._shards)
        gradient.copy_(self._wide)

    def samples(self) -> list[int]:
        """How often each of the M micro-shards is in the sum; all ones when the step is whole."""
        return [int(count) for count in self.buffer[self._n : self._n + self._shards].tolist()]

    def loss(self) -> float:
        """Mean loss over the M micro-shards, in nats per byte."""
        return int(self.buffer[self._n + self._shards]) / (2.0**_SCALE_BITS * self._shards)

    def votes(self) -> Votes:
        """What all members said."""
        return Votes._make(map(int, self.buffer[-_VOTES:].tolist()))
