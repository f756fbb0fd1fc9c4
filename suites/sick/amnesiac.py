"""Restores the weights, but reads the data from the beginning again.

Planted bug: the position in the data is not part of what is restored.
"""

from __future__ import annotations

from typing import Any

from minimal import Trainer, main


class Amnesiac(Trainer):
    def restore(self, state: dict[str, Any], source: str) -> None:
        super().restore(state, source)
        self.position = 0


if __name__ == "__main__":
    main(Amnesiac)
