"""Restores the weights, but begins with a fresh optimizer.

Planted bug: the momentum is not part of what is restored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from minimal import Trainer, main


class Forgetful(Trainer):
    def restore(self, state: dict[str, Any], source: str) -> None:
        super().restore(state, source)
        self.momentum = np.zeros_like(self.momentum)


if __name__ == "__main__":
    main(Forgetful)
