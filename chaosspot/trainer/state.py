"""All that a step changes: parameters, AdamW moments and counter, random state, position.

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
        self.step += 1

    def parts(self) -> dict[str, Tensor]:
        """The live flat tensors named in :data:`PARTS`."""
        return dict(zip(PARTS, (self._parameters, self._exp_avg, self._exp_avg_sq), strict=True))

    def random_state(self) -> Tensor:
        """torch's CPU generator, uint8. The model draws nothing after step 0; a user's may."""
        return torch.get_rng_state()

    def digest(self) -> str:
        """32 hex digits over all of the state."""
        hashed = hashlib.blake2b(digest_size=16)
        for part in self.parts().values():
            hashed.update(part.cpu().numpy().data.cast("B"))
        hashed.update(self.random_state().numpy().tobytes())
        hashed.update(f"{self.step}/{self._updates}".encode())
        return hashed.hexdigest()

    def state_dict(self) -> dict[str, object]:
        """What a peer or a snapshot needs; the tensors are live, not copies."""
        return {
            **self.parts(),
            "updates": self._updates,
            "random_state": self.random_state(),
            "step": self.step,
        }

    def load_state_dict(self, saved: Mapping[str, object]) -> None:
        """Take over a state, in place.

        Raises:
            TrainerError: a part is missing or has another shape: another model's state.
        """
        for name, part in self.parts().items():
            theirs = saved.get(name)
            if not isinstance(theirs, Tensor) or theirs.shape != part.shape:
                shape = tuple(theirs.shape) if isinstance(theirs, Tensor) else theirs
                raise TrainerError(
                    f"state of another model: {name} is {shape!r}, expected {tuple(part.shape)}"
                )
        step, updates, random_state = saved["step"], saved["updates"], saved["random_state"]
        if not (isinstance(step, int) and isinstance(updates, int)):
            raise TrainerError(f"not a state: step={step!r}, updates={updates!r}")
        if not isinstance(random_state, Tensor):
            raise TrainerError(f"not a state: random_state={random_state!r}")
        for name, part in self.parts().items():
            theirs = saved[name]
            assert isinstance(theirs, Tensor)
            part.copy_(theirs)
        self._updates = updates
        torch.set_rng_state(random_state.cpu())
        self.step = step

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
