"""All that a step changes: parameters, AdamW moments, counters, random state, position.

Each of the three big parts is one flat tensor and the model's parameters are views into the
first. That makes the update one call, a digest three, and a copy to or from the host three.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from chaosspot.trainer.config import TrainConfig, TrainerError
from chaosspot.trainer.model import ByteTransformer

__all__ = ["PARTS", "TrainState"]

PARTS = ("parameters", "exp_avg", "exp_avg_sq")
"""Names of the flat tensors, float32 (n,), in the order in which they are hashed and saved."""

_BALLAST_STRIDE = 1 << 20  # a byte in every MB changes with each step

_BETA_1, _BETA_2, _EPSILON, _WEIGHT_DECAY = 0.9, 0.999, 1e-8, 0.01


class TrainState:
    """The state after ``step`` updates, on ``device``; built from the seed at step 0."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        torch.manual_seed(config.seed)
        self.model = ByteTransformer(
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            seq_len_bytes=config.seq_len_bytes,
        ).to(device)
        self.step = 0
        self.layout: list[tuple[str, tuple[int, ...]]] = [
            (name, tuple(p.shape)) for name, p in self.model.named_parameters()
        ]
        self.n = sum(prod(shape) for _, shape in self.layout)
        self.gradient = torch.zeros(self.n, device=device)
        """(n,) float32; ``backward`` adds into it, :meth:`update` consumes it."""
        self._parameters = torch.zeros(self.n, device=device)
        self._exp_avg = torch.zeros(self.n, device=device)
        self._exp_avg_sq = torch.zeros(self.n, device=device)
        self._scratch = torch.zeros(self.n, device=device)
        self._ballast = torch.zeros(config.ballast_bytes, dtype=torch.uint8, device=device)
        self._updates = 0
        self._learning_rate = config.learning_rate
        self._adopt_parameters()

    @torch.no_grad()
    def update(self) -> None:
        """Apply one AdamW update with :attr:`gradient`; the position moves on by one step.

        Written out, as in Loshchilov and Hutter's paper, because the flat tensors make it six
        lines, and torch.optim's takes a second to import: a second of every recovery.
        """
        self._updates += 1
        correction_1 = 1 - _BETA_1**self._updates
        correction_2 = 1 - _BETA_2**self._updates
        self._parameters.mul_(1 - self._learning_rate * _WEIGHT_DECAY)
        self._exp_avg.lerp_(self.gradient, 1 - _BETA_1)
        self._exp_avg_sq.mul_(_BETA_2).addcmul_(self.gradient, self.gradient, value=1 - _BETA_2)
        root = torch.sqrt(self._exp_avg_sq, out=self._scratch)
        root.div_(correction_2**0.5).add_(_EPSILON)
        self._parameters.addcdiv_(self._exp_avg, root, value=-self._learning_rate / correction_1)
        self._ballast[self.step % _BALLAST_STRIDE :: _BALLAST_STRIDE] += 1
        self.step += 1

    def parts(self) -> dict[str, Tensor]:
        """The live flat tensors named in :data:`PARTS`."""
        return dict(zip(PARTS, (self._parameters, self._exp_avg, self._exp_avg_sq), strict=True))

    def _large(self) -> dict[str, Tensor]:
        return self.parts() | ({"ballast": self._ballast} if len(self._ballast) else {})

    def tensors(self) -> dict[str, Tensor]:
        """All of the state: the live flat tensors, ballast, (bytes,) uint8, and copies of what is
        small: torch's CPU generator, uint8, of which a user's model may draw, and the counters of
        steps and updates, (2,) int64."""
        return {
            **self._large(),
            "random_state": torch.get_rng_state(),
            "counters": torch.tensor([self.step, self._updates]),
        }

    def digest(self) -> str:
        """32 hex digits over all of the state."""
        hashed = hashlib.blake2b(digest_size=16)
        for tensor in self.tensors().values():
            hashed.update(tensor.cpu().numpy().data.cast("B"))
        return hashed.hexdigest()

    def state_dict(self) -> dict[str, object]:
        """What a peer needs; the large tensors are live, not copies."""
        return dict(self.tensors())

    def load_state_dict(self, saved: Mapping[str, object]) -> None:
        """Take over a state, in place.

        Raises:
            TrainerError: a tensor is missing or of another shape or type: another model's state.
        """
        theirs: dict[str, Tensor] = {}
        for name, mine in self.tensors().items():
            tensor = saved.get(name)
            if (
                not isinstance(tensor, Tensor)
                or tensor.shape != mine.shape
                or tensor.dtype != mine.dtype
            ):
                found = (tuple(tensor.shape), tensor.dtype) if isinstance(tensor, Tensor) else None
                expected = (tuple(mine.shape), mine.dtype)
                raise TrainerError(
                    f"state of another model: {name} is {found}, expected {expected}"
                )
            theirs[name] = tensor
        for name, mine in self._large().items():
            mine.copy_(theirs[name])
        torch.set_rng_state(theirs["random_state"].cpu().clone())  # it ignores a view's offset
        self.step, self._updates = map(int, theirs["counters"].tolist())

    def _adopt_parameters(self) -> None:
        """Turn the model's parameters and their gradients into views of the flat tensors."""
        start = 0
        for parameter in self.model.parameters():
            here = slice(start, start + parameter.numel())
            values = self._parameters[here].view_as(parameter)
            values.copy_(parameter.data)
            parameter.data = values
            parameter.grad = self.gradient[here].view_as(parameter)
            start = here.stop
